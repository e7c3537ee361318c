"""Families: a root with all that is made from it, by lines where it has a fingerprint."""

from __future__ import annotations

from app.kinship.inbox.families import FamilyList
from app.kinship.inbox.records import Family
from modelkin.core.kinship.lineage import LineageVerdict
from tests.app.kinship.inbox.conftest import Planter
from tests.support.app.harness import AppHarness


def families(app: AppHarness, limit: int = 10) -> list[Family]:
    """The largest families."""
    with app.database.reading() as session:
        return app.services[FamilyList].largest(session, app.tenant, limit=limit)


def test_a_chain_is_one_family(app: AppHarness, plant: Planter) -> None:
    """Its root has all that is made from it, in however many steps; what has no kin is none."""
    root = plant.fingerprint("org/root")
    tuned = plant.fingerprint("org/tuned", base=root)
    plant.fingerprint("org/silent", base=root)
    for number in range(2):
        plant.fingerprint(f"org/chat-{number}", base=tuned)
    plant.fingerprint("org/alone")
    [found] = families(app)
    assert ("org/root", None, 5, 0) == (found.root, found.space, found.members, found.more)
    assert (("org/tuned", 2), ("org/silent", 0)) == found.branches


def test_a_loop_has_a_root_all_the_same(app: AppHarness, plant: Planter) -> None:
    """Two models that name each other are a family of all that is made from either."""
    first, second = plant.fingerprint("org/a", base=2), plant.fingerprint("org/b", base=1)
    plant.fingerprint("org/c", base=second)
    assert (1, 2) == (first, second)
    [found] = families(app)
    assert ("org/a", 3) == (found.root, found.members)


def test_the_largest_come_first(app: AppHarness, plant: Planter) -> None:
    """And no more than were asked for; branches beyond the third are counted."""
    for size in (1, 5, 3):
        root = plant.fingerprint(f"org/root-{size}")
        for number in range(size):
            plant.fingerprint(f"org/root-{size}-{number}", base=root)
    found = families(app, limit=2)
    assert ["org/root-5", "org/root-3"] == [each.root for each in found]
    assert (3, 2) == (len(found[0].branches), found[0].more)


def test_declared_bases_make_the_families_of_spaces(app: AppHarness, plant: Planter) -> None:
    """Where the root has no fingerprint, stored or not, and through each step."""
    plant.model("zoo", "org/tuned", base="org/elsewhere")
    plant.model("zoo", "org/chat", base="org/tuned")
    [found] = families(app)
    assert ("org/elsewhere", "zoo", 2) == (found.root, found.space, found.members)
    assert (False, None) == (found.is_stored, found.meant)
    assert (("org/tuned", 1),) == found.branches


def test_what_is_contradicted_is_no_member(app: AppHarness, plant: Planter) -> None:
    """Nor is what goes in a circle; a base that nothing else declares is no family."""
    for name in ("org/true", "org/false"):
        model = plant.model("zoo", name, base="org/elsewhere")
        verdict: LineageVerdict = "mismatch" if name == "org/false" else "consistent"
        plant.finding(model, "zoo", name, verdict, "org/elsewhere")
    lies = plant.model("zoo", "org/lies", base="org/alone")
    plant.finding(lies, "zoo", "org/lies", "mismatch", "org/alone")
    for name, base in (("org/left", "org/right"), ("org/right", "org/left")):
        plant.finding(plant.model("zoo", name, base=base), "zoo", name, "cycle", base)
    [found] = families(app)
    assert ("org/elsewhere", 1) == (found.root, found.members)
    assert ((("org/true", 0),), 0) == (found.branches, found.more)


def test_a_model_that_is_made_from_itself_alone_is_no_family(
    app: AppHarness, plant: Planter
) -> None:
    """It has no other member."""
    plant.model("zoo", "org/own", base="org/own")
    assert [] == families(app)


def test_a_mistyped_base_names_the_one_that_was_meant(app: AppHarness, plant: Planter) -> None:
    """In this space, or with a fingerprint alone; not one that declares it, or of another size."""
    plant.model("zoo", "org/lm-base")
    plant.fingerprint("far/vision-base")
    for number, base in enumerate(["org/lm-bsae", "far/vison-base", "org/lm-ba-7b", "org/sft"]):
        plant.model("zoo", f"{base}1" if base == "org/sft" else f"org/made-{number}", base=base)
    plant.model("zoo", "org/lm-ba-8b")
    meant = {each.root: each.meant for each in families(app)}
    assert {
        "org/lm-bsae": "org/lm-base",
        "far/vison-base": "far/vision-base",
        "org/lm-ba-7b": None,
        "org/sft": None,
    } == meant
    assert {1} == {each.members for each in families(app)}
    plant.model("zoo", "org/lm-bsae")
    assert "org/lm-bsae" not in {each.root for each in families(app) if not each.is_stored}


def test_lines_speak_of_a_root_that_has_some(app: AppHarness, plant: Planter) -> None:
    """Whatever models of a space declare of it."""
    plant.fingerprint("org/claimed")
    plant.model("zoo", "org/claims", base="org/claimed")
    assert [] == families(app)
