"""Lineages of fingerprints over HTTP: declared bases judged by lines, whatever their layouts."""

from __future__ import annotations

import pytest

from app.anatomy.keeping import AnatomyKeeper
from app.anatomy.repositories.anatomies import Due
from tests.app.kinship.lines.conftest import NEW, OLD, Fingerprints, planted, words


@pytest.mark.parametrize(
    ("made", "relation"),
    [
        ("up-scaled", "depth_up_scaled"),
        ("more tokens", "vocabulary_resized"),
        pytest.param("experts", "upcycled", marks=pytest.mark.slow),
        pytest.param("transposed", "copy", marks=pytest.mark.slow),
        pytest.param("fused", "layout", marks=pytest.mark.slow),
    ],
)
def test_a_base_of_another_layout_is_confirmed(
    stored: Fingerprints, made: str, relation: str
) -> None:
    """With the share of lines, P, and what became of it in one word and in sentences."""
    stored.put("acme/base", planted("base"))
    stored.put("acme/made", planted(made), base_models=("acme/base",))
    found = stored.lineage("acme/made")
    assert ("consistent", "lines", relation) == words(found)
    lines = found["lines"]
    assert ("shares", "client") == (lines["finding"], lines["stated_by"])
    assert lines["share_of_lines"] > 0.7
    assert lines["log10_p"] < -100
    assert lines["found"] == lines["tensors"] or made == "fused"
    assert None is found["likely_base"]
    assert found["declared_bases"][0]["lines"] == lines
    assert lines["relations"][-1]["sentence"] in found["summary"]
    assert "the same random seed" in found["summary"]


@pytest.mark.slow
def test_new_tensors_are_named(stored: Fingerprints) -> None:
    """Those that have lines of the base, and those that have none."""
    stored.put("base", planted("base"))
    stored.put("made", planted("more tokens"), base_models=("base",))
    lines = stored.lineage("made")["lines"]
    assert ("layers 0-3, embed", None) == (lines["tensors_of_base"], lines["new_tensors"])


def test_another_source_contradicts_a_base(stored: Fingerprints) -> None:
    """Most lines are those of an older model, which has nothing in common with the base."""
    stored.put("true", planted("base"), published_at=OLD)
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("made", planted("tuned"), base_models=("claimed",), published_at=NEW)
    found = stored.lineage("made")
    assert ("mismatch", "lines", None) == words(found)
    assert ("other_source", ["true"]) == (found["lines"]["finding"], found["lines"]["sources"])
    assert "true" == found["likely_base"]
    assert "lines" == found["likely_by_lines"]["edge"]
    assert "most of its lines are those of 'true'" in found["summary"]


def test_absence_contradicts_nothing(stored: Fingerprints) -> None:
    """Neither where no other model explains the lines, nor where one may be the younger."""
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("made", planted("tuned"), base_models=("claimed",), published_at=OLD)
    found = stored.lineage("made")
    assert ("inconclusive", "lines", None) == words(found)
    assert ("nothing", None) == (found["lines"]["finding"], found["likely_base"])
    assert "proves nothing" in found["summary"]
    stored.put("younger", planted("base"), published_at=NEW)
    found = stored.lineage("made")
    assert ("inconclusive", None) == (found["verdict"], found["likely_base"])
    stored.put("undated", planted("sibling"))
    found = stored.lineage("made")
    assert ("inconclusive", "undated") == (found["verdict"], found["likely_base"])
    assert "which of the two came first, nothing here says" in found["summary"]


@pytest.mark.slow
def test_models_that_declare_the_base_contradict_nothing(stored: Fingerprints) -> None:
    """A fine-tune of the same base, of which no line is left either, is no other source."""
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("kin", planted("base"), base_models=("claimed",), published_at=OLD)
    stored.put("made", planted("tuned"), base_models=("claimed",), published_at=NEW)
    assert "inconclusive" == stored.lineage("made")["verdict"]


def test_what_clients_state_contradicts_no_file_that_was_read(stored: Fingerprints) -> None:
    """Neither as another source, nor as the base itself, which may be anything."""
    stored.put("claimed", planted("stranger"), stated_by="hub", published_at=OLD)
    stored.put("true", planted("base"), published_at=OLD)
    made = {"base_models": ("claimed",), "published_at": NEW, "stated_by": "hub"}
    stored.put("made", planted("tuned"), **made)
    assert "inconclusive" == stored.lineage("made")["verdict"]
    stored.put("true", planted("base"), stated_by="hub", published_at=OLD)
    assert "mismatch" == stored.lineage("made")["verdict"]
    stored.delete("claimed")
    stored.put("claimed", planted("stranger"), published_at=OLD)
    assert "inconclusive" == stored.lineage("made")["verdict"]


def test_an_undeclared_base_is_found(stored: Fingerprints) -> None:
    """The base, and not a sibling that is as near."""
    stored.put("base", planted("base"), published_at=OLD)
    stored.put("sibling", planted("sibling"), base_models=("base",), published_at=OLD)
    stored.put("made", planted("tuned"), published_at=NEW)
    found = stored.lineage("made")
    assert ("undeclared", None, None) == words(found)
    assert "base" == found["likely_base"]
    assert found["compared"] >= 2
    stored.put("alone", planted("stranger"))
    found = stored.lineage("alone")
    assert ("undeclared", None) == (found["verdict"], found["likely_base"])
    assert (
        "No other model was found that it may be made from. That proves nothing."
        in found["summary"]
    )


def test_a_root_is_offered_no_child_of_its_own(stored: Fingerprints) -> None:
    """What others declare is a root; what is near it and silent may be made from it."""
    stored.put("base", planted("base"))
    stored.put("made", planted("tuned"), base_models=("base",))
    stored.put("silent", planted("sibling"))
    found = stored.lineage("base")
    assert ("undeclared", None) == (found["verdict"], found["likely_base"])
    assert "others declare this one: it is the root of a family." in found["summary"]
    assert "base" == stored.lineage("silent")["likely_base"]
    stored.delete("silent")
    for silent in ("base", "up-scaled"):  # a copy, and one that the root is a part of
        stored.put("silent", planted(silent))
        assert stored.lineage("base")["likely_base"] is None
        assert "base" == stored.lineage("silent")["likely_base"]
    stored.put("base", planted("base"), published_at=NEW)
    stored.put("silent", planted("base"), published_at=OLD)
    assert "silent" == stored.lineage("base")["likely_base"]


def test_no_base_is_offered_that_was_put_together_of_the_model(stored: Fingerprints) -> None:
    """Its anatomy says of what, whether it is stored already or not. The merge has its sources."""
    stored.put("stranger", planted("stranger"))
    mixed = stored.put("mixed", planted("mixed")).record
    assert "mixed" == stored.lineage("stranger")["likely_base"]  # half of it may be anything
    stored.put("base", planted("base"))
    said = "'mixed' was put together of this model and others, as the tensors show."
    for _ in range(2):
        found = stored.lineage("stranger")
        assert ("undeclared", None) == (found["verdict"], found["likely_base"])
        assert said in found["summary"]
        assert stored.lineage("mixed")["likely_base"] in ("stranger", "base")
        keeper = stored.app.services[AnatomyKeeper]
        keeper.make(stored.app.tenant, Due(mixed.id, is_changed=True, hint=None, failures=0))


def test_an_unknown_base_is_said_to_be_so(stored: Fingerprints) -> None:
    """One that never came, and one that was deleted."""
    stored.put("base", planted("base"))
    stored.put("made", planted("tuned"), base_models=("base",))
    assert "consistent" == stored.lineage("made")["verdict"]
    stored.delete("base")
    found = stored.lineage("made")
    assert ("unknown_base", None, None) == words(found)
    assert ("base", None) == (found["declared_base"], found["lines"])
    assert "'base' has no fingerprint here" in found["summary"]


def test_each_verdict_has_a_p_or_says_why_not(stored: Fingerprints) -> None:
    """Of the declared base, else of the likely one; and so has each base that is declared."""
    stored.put("true", planted("base"), published_at=OLD)
    stored.put("claimed", planted("stranger"), published_at=OLD)
    for name, bases in (("kept", ("true", "gone")), ("wrong", ("claimed",)), ("silent", ())):
        stored.put(name, planted("tuned"), base_models=bases, published_at=NEW)
    stored.put("lost", planted("experts"), base_models=("gone",), published_at=OLD)
    wrong, silent = stored.lineage("wrong"), stored.lineage("silent")
    assert wrong["log10_p"] == wrong["lines"]["log10_p"] > -3
    assert silent["log10_p"] == silent["likely_by_lines"]["log10_p"] < -100
    told, unknown = stored.lineage("kept")["declared_bases"]
    assert told["log10_p"] == told["lines"]["log10_p"] < -100
    assert "nothing was measured that a P could be of" == unknown["no_p"]
    stored.delete("true")
    for name in ("claimed", "lost", "wrong", "kept"):
        found = stored.lineage(name)
        for each in (found, *found["declared_bases"]):
            assert (each["log10_p"] is None) != (each["no_p"] is None)


@pytest.mark.slow
def test_a_deleted_source_leaves_its_lineages(stored: Fingerprints) -> None:
    """Fingerprints outlive the source that they came by."""
    http = stored.app.http
    source = {"kind": "huggingface", "space": "followed", "secret": "s" * 40}
    made = http.post("/v1/sources", json=source)
    assert 201 == made.status_code, made.text
    read = {"stated_by": "hub", "source_id": made.json()["id"]}
    stored.put("acme/base", planted("base"), **read)
    stored.put("acme/made", planted("tuned"), base_models=("acme/base",), **read)
    before = stored.lineage("acme/made")
    assert 204 == http.delete(f"/v1/sources/{made.json()['id']}").status_code
    assert ("consistent", before) == (before["verdict"], stored.lineage("acme/made"))


def test_a_base_that_declares_itself_is_a_cycle(stored: Fingerprints) -> None:
    """So are loops of several; what leads into a loop of others is none."""
    stored.put("self", planted("base"), base_models=("self",))
    found = stored.lineage("self")
    assert ("cycle", True) == (found["verdict"], found["cycle"])
    assert [("self", "self")] == [(e["model"], e["base_model"]) for e in found["chain"]]
    stored.put("a", planted("base"), base_models=("b",))
    stored.put("b", planted("tuned"), base_models=("a",))
    found = stored.lineage("a")
    assert ("cycle", None) == (found["verdict"], found["reason"])
    assert "(a -> b -> a)" in found["summary"]
    stored.put("into", planted("sibling"), base_models=("a",))
    found = stored.lineage("into")
    assert ("consistent", True) == (found["verdict"], found["cycle"])


@pytest.mark.slow
def test_a_chain_has_the_lines_of_each_step(stored: Fingerprints) -> None:
    """As far as fingerprints are known."""
    stored.put("root", planted("base"), base_models=("gone",))
    stored.put("middle", planted("tuned"), base_models=("root",))
    stored.put("made", planted("sibling"), base_models=("middle",))
    chain = stored.lineage("made")["chain"]
    assert ["middle", "root", "gone"] == [each["base_model"] for each in chain]
    assert [True, True, False] == [each["share_of_lines"] is not None for each in chain]
    assert 0.5 < chain[1]["share_of_lines"] < 0.7


@pytest.mark.slow
def test_each_of_several_bases_is_judged(stored: Fingerprints) -> None:
    """The first that weighs most decides; beside a confirmed one, no other is contradicted."""
    stored.put("base", planted("base"), published_at=OLD)
    stored.put("claimed", planted("stranger"), published_at=OLD)
    both = ("base", "claimed", "gone")
    stored.put("made", planted("tuned"), base_models=both, base_relation="merge", published_at=NEW)
    found = stored.lineage("made")
    verdicts = {each["base_model"]: each["verdict"] for each in found["declared_bases"]}
    assert {
        "base": "consistent",
        "claimed": "inconclusive",
        "gone": "unknown_base",
    } == verdicts
    assert ("unknown_base", "gone", "merge") == (
        found["verdict"],
        found["declared_base"],
        found["base_relation"],
    )


def test_bits_tell_a_quantised_copy(stored: Fingerprints) -> None:
    """By the bytes of both files and what is declared; and a file may not be what is said."""
    base, rounded = planted("base"), planted("8 bits")
    parameters = sum(tensor.size for tensor in base.tensors)
    stored.put("base", base, file_bytes=2 * parameters)
    stored.put("made", rounded, base_models=("base",), file_bytes=parameters)
    assert ("consistent", "lines", "quantised") == words(stored.lineage("made"))
    said = {"base_models": ("base",), "base_relation": "quantized"}
    stored.put("made", rounded, file_bytes=parameters, **said)
    assert ("consistent", "lines", "quantised_copy") == words(stored.lineage("made"))
    stored.put("made", rounded, file_bytes=2 * parameters, **said)
    found = stored.lineage("made")
    assert "changed" == found["relation"]
    assert "The model is said to be quantised, and its file has 16.0 bits" in found["summary"]


@pytest.mark.slow
def test_a_base_that_came_later_is_said_to_be_younger(stored: Fingerprints) -> None:
    """Lines have no direction, so it is confirmed all the same."""
    stored.put("base", planted("base"), published_at=NEW)
    stored.put("made", planted("tuned"), base_models=("base",), published_at=OLD)
    found = stored.lineage("made")
    assert "consistent" == found["verdict"]
    assert "The base was published after the model." in found["summary"]


def test_a_name_without_a_fingerprint_is_not_found(stored: Fingerprints) -> None:
    """Nor is one of another tenant."""
    stored.put("base", planted("base"))
    assert "base" == stored.lineage("base")["model"]
    http = stored.app.http
    assert 404 == http.get("/v1/fingerprints/none/lineage").status_code
    other = stored.app.headers_of("other")
    answer = http.get("/v1/fingerprints/base/lineage", headers=other)
    assert (404, "fingerprint_not_found") == (answer.status_code, answer.json()["code"])
