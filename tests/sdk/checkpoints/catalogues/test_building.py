"""Catalogues built of a list: of files, and of repositories of a hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from modelkin import checkpoints
from modelkin.checkpoints.catalogues.building import Built, build
from modelkin.checkpoints.catalogues.lists import read_list
from modelkin.errors import ConnectionFailed, InvalidParameter
from tests.sdk.core.fingerprints.planted import DERIVED, model
from tests.support.servers.fake_huggingface import Handler, Hub, answering, loopback_hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub, and the CDN of its large files."""
    with loopback_hub() as opened:
        yield opened


@cache
def weights(seed: int) -> bytes:
    """A checkpoint's bytes."""
    return save({name: np.ascontiguousarray(values) for name, values in model(seed).items()})


def built(folder: Path, hub: Hub | None, *lines: str) -> Built:
    """The catalogue of a list, as ``bases.mkct``."""
    wanted = list(read_list(lines, "list"))
    return build(wanted, folder / "bases.mkct", hub=None if hub is None else hub.url)


def files_of(hub: Hub) -> list[str]:
    """The files of weights that the hub's CDN sends from now on."""
    sent = list[str]()

    def note(request: Handler) -> bool:
        sent.extend([request.path] * (request.command == "GET"))
        return False

    hub.on_cdn = note
    return sent


def test_files_of_this_machine(tmp_path: Path) -> None:
    """A checkpoint and a fingerprint become bases, with what their lines say of them."""
    path = tmp_path / "a base.safetensors"
    path.write_bytes(weights(0))
    made = checkpoints.fingerprint(path)
    made.save(tmp_path / "b.mkfp")
    found = built(
        tmp_path,
        None,
        "# bases of ours",
        f"'{path}' name=org/a license=mit url=https://hub/a date=2024-05-01 base=org/z,org/y",
        "",
        f"{tmp_path}/b.mkfp relation=finetune revision=7 # the same",
    ).catalogue
    assert ["b", "org/a"] == list(found)
    assert made == found.fingerprint("org/a") == found.fingerprint("b")
    assert ("mit", "https://hub/a", datetime(2024, 5, 1, tzinfo=UTC), ("org/z", "org/y")) == (
        found["org/a"].license,
        found["org/a"].url,
        found["org/a"].published_at,
        found["org/a"].base_models,
    )
    assert (len(weights(0)), "finetune", "7") == (
        found["org/a"].file_bytes,
        found["b"].base_relation,
        found["b"].revision,
    )
    assert ["a base.safetensors", "b.mkfp", "bases.mkct"] == sorted(
        each.name for each in tmp_path.iterdir()
    )


@pytest.mark.slow
def test_repositories_of_a_hub(tmp_path: Path, hub: Hub) -> None:
    """The base has the page's commit, licence, date and declared bases, and the same fingerprint
    as the file.
    """
    card = {"license": "mit", "base_model": ["org/z"], "base_model_relation": "merge"}
    first = hub.push("org/a", {"model.safetensors": weights(0)})
    newest = hub.push("org/a", {"model.safetensors": weights(1)}, card=card)
    hub.push("org/b", {"model.safetensors": weights(2)})
    found = built(tmp_path, hub, "org/a", "org/b", f"org/a@{first} name=org/a-before").catalogue
    assert ["org/a", "org/a-before", "org/b"] == list(found)
    base = found["org/a"]
    assert (newest, f"{hub.url}/org/a", "mit", ("org/z",), "merge", len(weights(1))) == (
        *(base.revision, base.url, base.license, base.base_models, base.base_relation),
        base.file_bytes,
    )
    assert datetime(2026, 1, 1, tzinfo=UTC) == base.published_at
    assert first == found["org/a-before"].revision
    path = tmp_path / "model.safetensors"
    for name, seed in (("org/a", 1), ("org/a-before", 0), ("org/b", 2)):
        path.write_bytes(weights(seed))
        assert checkpoints.fingerprint(path) == found.fingerprint(name)
    assert {None} == hub.hub_tokens


@pytest.mark.slow
def test_shards_and_components(tmp_path: Path, hub: Hub) -> None:
    """A sharded model is one base, and of a pipeline each component is one."""
    halves = [dict(list(model(0).items())[part::2]) for part in (0, 1)]
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    files = {name: save(half) for name, half in zip(names, halves, strict=True)}
    hub.push("org/shards", files)
    index = b'{"unet": ["diffusers", "A"], "vae": ["diffusers", "B"], "x": [null, null]}'
    part = "diffusion_pytorch_model.safetensors"
    hub.push(
        "org/pipeline",
        {"model_index.json": index, f"unet/{part}": weights(1), f"vae/{part}": weights(2)},
    )
    found = built(tmp_path, hub, "org/shards", "org/pipeline name=org/p").catalogue
    assert ["org/p/unet", "org/p/vae", "org/shards"] == list(found)
    assert sum(map(len, files.values())) == found["org/shards"].file_bytes
    child = tmp_path / "child.safetensors"
    child.write_bytes(save(DERIVED["renamed"](model(2))))
    anatomy = found.anatomy(checkpoints.fingerprint(child))
    assert ["org/p/vae"] == [parent.model for parent in anatomy.parents]


def test_a_build_goes_on_where_it_was_interrupted(tmp_path: Path, hub: Hub) -> None:
    """What was read of a hub that stops answering is not fetched again, and nothing is lost."""
    for number in range(3):
        hub.push(f"org/{number}", {"model.safetensors": weights(number)})

    def stops(request: Handler) -> bool:
        return request.path.startswith("/api/models/org/1") and answering(503)(request)

    lines = [f"org/{number}" for number in range(3)]
    hub.on_hub = stops
    with pytest.raises(ConnectionFailed, match="answers 503"):
        built(tmp_path, hub, *lines)
    assert not (tmp_path / "bases.mkct").exists()
    hub.on_hub = lambda _: False
    fetched = files_of(hub)
    found = built(tmp_path, hub, *lines)
    assert (3, 2, 2) == (len(found.catalogue), found.read, len(fetched))


@pytest.mark.slow
def test_a_later_build_fetches_what_is_new(tmp_path: Path, hub: Hub) -> None:
    """Bases whose commit the catalogue has stay as they are; one that left the list goes."""
    for number in range(3):
        hub.push(f"org/{number}", {"model.safetensors": weights(number)})
    first = built(tmp_path, hub, "org/0 name=mine", "org/1", "org/2")
    hub.push("org/1", {"model.safetensors": weights(5)})
    fetched = files_of(hub)
    again = built(tmp_path, hub, "org/0 name=mine", "org/1")
    assert (3, 1, 1) == (first.read, again.read, len(fetched))
    assert ["mine", "org/1"] == list(again.catalogue)
    assert first.catalogue["mine"] == again.catalogue["mine"]
    assert first.catalogue["org/1"].revision != again.catalogue["org/1"].revision


@pytest.mark.slow
def test_lines_that_fail_are_told_and_the_others_kept(tmp_path: Path, hub: Hub) -> None:
    """Each with its reason; the same list tries them again, and reads nothing else."""
    hub.push("org/good", {"model.safetensors": weights(0)})
    hub.push("org/gated", {"model.safetensors": weights(1)}, gated=True)
    hub.push("org/empty", {"notes.txt": b""})
    hub.push("org/broken", {"model.safetensors": b"not a checkpoint"})
    hub.push("org/strange", {"../model.safetensors": weights(1)})
    names = ("good", "gated", "none", "empty", "broken", "strange")
    found = built(tmp_path, hub, *(f"org/{name}" for name in names), str(tmp_path / "no.mkfp"))
    assert ["org/good"] == list(found.catalogue)
    said = {each.text.rpartition("/")[2]: each.reason for each in found.failures}
    assert {*names[1:], "no.mkfp"} == said.keys()
    assert "Access to model org/gated is restricted" in said["gated"]
    assert "holds no safetensors or GGUF file" in said["empty"]
    assert "model.safetensors" in said["broken"]
    assert "'../model.safetensors'" in said["strange"]
    assert [2, 3, 4, 5, 6, 7] == [each.line for each in found.failures]
    again = built(tmp_path, hub, *(f"org/{name}" for name in names[:2]))
    assert (0, 1) == (again.read, len(again.failures))


def test_a_token_goes_to_no_other_hub(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the environment is for the hub that the environment names."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_user")
    hub.push("org/a", {"model.safetensors": weights(0)})
    built(tmp_path, hub, "org/a")
    assert {None} == hub.hub_tokens | hub.cdn_tokens


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("org/a licence=mit", "list, line 2: 'licence=mit' is none of name=..., url=..."),
        ("org/a license=", "list, line 2: 'license=' is none of"),
        ("org/a date=yesterday", "list, line 2: Invalid isoformat string"),
        ("org/a url=a url=b", "list, line 2: url is there twice"),
        ("'org/a", "list, line 2: No closing quotation"),
    ],
)
def test_lines_that_are_none(line: str, says: str) -> None:
    """The error names the line, and what is wrong with it."""
    with pytest.raises(InvalidParameter, match=says):
        list(read_list(["org/z", line], "list"))


def test_two_bases_of_one_name_are_refused(tmp_path: Path, hub: Hub) -> None:
    """Neither would be told from the other, so the catalogue is not written."""
    hub.push("org/a", {"model.safetensors": weights(0)})
    hub.push("org/b", {"model.safetensors": weights(1)})
    with pytest.raises(InvalidParameter, match="two lines give a base named 'org/a'"):
        built(tmp_path, hub, "org/a", "org/b name=org/a")
    assert not (tmp_path / "bases.mkct").exists()


def test_a_list_of_nothing_says_so(tmp_path: Path, hub: Hub) -> None:
    """No catalogue is written, and the first reasons are told."""
    for lines, says in ([(), "it is empty"], [("org/none",), "line 1: 'org/none'"]):
        with pytest.raises(InvalidParameter, match=f"gave a base: {says}"):
            built(tmp_path, hub, *lines)
