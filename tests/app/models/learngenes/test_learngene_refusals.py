"""What the registry refuses: files that are not learngenes, tensors of others, and what moves."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from app.models.learngenes.validation import content_of_file
from modelkin.errors import InvalidLearngene
from tests.app.models.learngenes.conftest import MAX_BYTES, M
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.models.learngene_files import REFERENCE, gene, manifest_of, safetensors_of
from tests.support.repetitions import repetitions

SAFETENSORS = "application/vnd.safetensors"
LAYOUT = [{"name": "conv.weight", "shape": [4, 1, 3, 3]}, {"name": "conv.bias", "shape": [4]}]


@pytest.fixture
def plain(keeper: httpx.Client) -> Space:
    """A space without a layout."""
    return Space(keeper, M)


def put(space: Space, body: Any, of: str = "all", **query: Any) -> httpx.Response:
    path = f"{space.path('clusters')}/{of}/learngene"
    if isinstance(body, bytes):
        headers = {"Content-Type": SAFETENSORS}
        return space.http.put(path, content=body, headers=headers, params=query)
    return space.http.put(path, json=body, params=query)


def nothing_is_stored(space: Space) -> bool:
    found: list[Any] = ok(space.http.get(space.path("learngenes")))["items"]
    return not found


def not_finite(value: float) -> bytes:
    return safetensors_of({"conv.bias": np.array([1, value, 2, 3], np.float32)})


@on_one_database
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (b"\x80\x04\x95 a pickle", "it is a pickle, as torch.save writes it"),
        (gene() + b"x", "followed by other bytes"),
        (gene()[:-1], "truncated"),
        (safetensors_of({"steps": np.zeros(2, np.int64)}), "floating-point"),
        (not_finite(np.nan), "not finite"),
        (not_finite(np.inf), "not finite"),
        (not_finite(-np.inf), "not finite"),
        (safetensors_of({}), "1 to 100000 tensors"),
    ],
)
def test_other_files_are_refused(plain: Space, data: bytes, why: str) -> None:
    """The error says why, and nothing is stored."""
    assert why in assert_problem(put(plain, data), 422, "invalid_learngene")
    assert nothing_is_stored(plain)


@on_one_database
@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"digest": "sha256:x"}, "invalid_learngene", "digest"),
        ({"digest": None}, "invalid_parameter", "digest"),
        ({"bytes": 10}, "invalid_learngene", "bytes"),
        ({"bytes": 2**62}, "invalid_learngene", "bytes"),
        ({"bytes": True}, "invalid_parameter", "bytes"),
        ({"tensors": []}, "invalid_learngene", "tensors"),
        ({"tensors": [{"name": "a", "dtype": "I8", "shape": [2]}]}, "invalid_learngene", ""),
        ({"tensors": [{"name": "a", "dtype": "F32", "shape": [-1]}]}, "invalid_parameter", ""),
        ({"tensors": [{"name": "a", "dtype": "F32"}]}, "invalid_parameter", ""),
        ({"reference": None}, "invalid_parameter", "reference"),
        ({"reference": {**REFERENCE, "revision": "main"}}, "invalid_parameter", ""),
        ({"reference": {"kind": "file", "url": "file:///x"}}, "invalid_parameter", ""),
        (
            {"reference": {"kind": "https", "url": "https://u:p@h.example/"}},
            "invalid_parameter",
            "reference.url",
        ),
        ({"members": 0}, "invalid_parameter", "members"),
        ({"rounds": -1}, "invalid_parameter", "rounds"),
        ({"metrics": {"a": "1"}}, "invalid_parameter", "metrics.a"),
        ({"metrics": {"": 1}}, "invalid_parameter", "metrics"),
        ({"metrics": {str(at): 1 for at in range(101)}}, "invalid_parameter", "metrics"),
        ({"note": "\0"}, "invalid_parameter", "note"),
        ({"note": "x" * 2001}, "invalid_parameter", "note"),
        ({"surplus": 1}, "invalid_parameter", "surplus"),
    ],
)
def test_other_manifests_are_refused(
    plain: Space, changed: dict[str, Any], code: str, field: str
) -> None:
    """The error names the field, and nothing is stored."""
    refused = put(plain, {**manifest_of(gene()), **changed})
    detail = assert_problem(refused, 422, code, field)
    assert "u:p" not in detail
    assert nothing_is_stored(plain)


@on_one_database
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"members": 0}, "members"),
        ({"metrics": "{"}, ""),
        ({"metrics": '{"a": "x"}'}, ""),
        ({"metrics": "[]"}, ""),
        ({"note": "x" * 2001}, "note"),
    ],
)
def test_what_the_query_says_of_a_file_is_checked(
    plain: Space, query: dict[str, Any], field: str
) -> None:
    """As it would be in a manifest, which takes no query of its own."""
    assert_problem(put(plain, gene(), **query), 422, "invalid_parameter", field)
    assert_problem(put(plain, manifest_of(gene()), members=3), 422, "invalid_parameter", "query")
    assert nothing_is_stored(plain)


@on_one_database
@pytest.mark.parametrize("of", ["-1", "none", "01", "1" * 30, "%00", "all%20"])
def test_names_that_are_no_cluster(plain: Space, of: str) -> None:
    """A cluster is an id or all."""
    path = f"{plain.path('clusters')}/{of}/learngene"
    assert_problem(plain.http.get(path), 422, "invalid_parameter", "cluster")


@on_one_database
@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize(
    ("shapes", "why"),
    [({"conv.gain": (4,)}, "is not in"), ({"conv.bias": (5,)}, "has shape [5], and [4]")],
)
def test_tensors_are_those_of_the_layout(
    keeper: httpx.Client, as_file: bool, shapes: dict[str, tuple[int, ...]], why: str
) -> None:
    """Of a space with a layout, whether a file or a manifest comes; any part of it may."""
    space = Space(keeper, 40, layout=LAYOUT)
    data = gene(0, **shapes)
    refused = put(space, data if as_file else manifest_of(data))
    assert why in assert_problem(refused, 422, "invalid_learngene")
    part = gene(0, **{"conv.bias": (4,)})
    assert 201 == put(space, part if as_file else manifest_of(part)).status_code
    assert 201 == put(space, gene() if as_file else manifest_of(gene())).status_code


@on_one_database
def test_tensors_are_those_of_the_first_learngene(plain: Space) -> None:
    """Of a space without a layout; another cluster's first, too."""
    assert 201 == put(plain, manifest_of(gene())).status_code
    other = manifest_of(gene(0, **{"dense.weight": (3, 3)}))
    assert "first learngene" in assert_problem(put(plain, other), 422, "invalid_learngene")
    assert 201 == put(plain, gene(0, **{"conv.bias": (4,)})).status_code
    plain.http.delete(f"{plain.path('clusters')}/all/learngene", params={"version": 1})
    assert_problem(put(plain, gene()), 422, "invalid_learngene")


@on_one_database
def test_a_file_that_is_not_what_its_manifest_states(plain: Space) -> None:
    """The digest is the same and the tensors are not: neither the file nor a manifest is taken."""
    wrong = {**manifest_of(gene()), "tensors": manifest_of(gene(a=(40,)))["tensors"]}
    assert 201 == put(plain, wrong).status_code
    for body in (gene(), manifest_of(gene())):
        detail = assert_problem(put(plain, body), 422, "invalid_learngene")
        assert "not in the first learngene" in detail
    plain.http.delete(f"{plain.path('clusters')}/all/learngene")
    other = Space(plain.http, M, layout=[{"name": "a", "shape": [1000]}])
    data, half = gene(a=(1000,)), {"name": "a", "dtype": "F16", "shape": [1000]}
    assert 201 == put(other, {**manifest_of(data), "tensors": [half], "bytes": 4100}).status_code
    assert "delete that version" in assert_problem(put(other, data), 422, "invalid_learngene")


@on_one_database
def test_a_long_header_is_read_as_a_short_one(plain: Space) -> None:
    """By another process, once that has started: with the same answers and refusals."""
    many = {f"layer.{at}.weight": (1,) for at in range(500)}
    wrong = safetensors_of({name: np.zeros(1, np.int64) for name in many})
    for seed in range(3):
        assert "floating-point" in assert_problem(put(plain, wrong), 422, "invalid_learngene")
        made = ok(put(plain, gene(seed, **many)))
        assert (500, seed + 1) == (made["num_tensors"], made["version"])
        time.sleep(0.3)


@on_one_database
def test_files_have_a_limit(plain: Space) -> None:
    """It is the operator's, and says how it is set; a manifest may be of a larger file."""
    large = gene(0, w=(MAX_BYTES // 4, 1))
    detail = assert_problem(put(plain, large), 413, "payload_too_large")
    assert f"{MAX_BYTES} bytes" in detail
    assert "MODELKIN_MAX_LEARNGENE_BYTES" in detail
    assert 201 == put(plain, manifest_of(large)).status_code
    listed = {**manifest_of(large), "tensors": 20_000 * manifest_of(gene())["tensors"]}
    detail = assert_problem(put(plain, listed), 413, "payload_too_large")
    assert "MODELKIN_MAX_JSON_BYTES" in detail


def test_publishers_at_once_have_versions_each(clustered: Space) -> None:
    """Two publishers of one cluster never get the same version, and no file is lost."""
    found: list[int] = []

    def publish(seed: int) -> None:
        found.append(put(clustered, gene(seed), "0").json()["version"])

    threads = [threading.Thread(target=publish, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [1, 2, 3, 4, 5, 6] == sorted(found)
    assert 6 == ok(clustered.http.get(f"{clustered.path('clusters')}/0/learngene"))["version"]


def mutants(data: bytes, count: int) -> list[bytes]:
    """Files with flipped, lost and doubled bytes, most of them in the header."""
    rng = np.random.default_rng(1)
    header = 8 + int.from_bytes(data[:8], "little")
    changes: tuple[Callable[[bytes, int], bytes], ...] = (
        lambda given, at: given[:at] + bytes([given[at] ^ 1 << at % 8]) + given[at + 1 :],
        lambda given, at: given[:at] + bytes([int(rng.integers(256))]) + given[at + 1 :],
        lambda given, at: given[:at] + given[at + 1 :],
        lambda given, at: given[:at],
        lambda given, at: given[:at] + given[at:] * 2,
        lambda given, at: given[:at] + b"9" + given[at:],
    )
    made = []
    for _ in range(count):
        mutant = data
        for _ in range(int(rng.integers(1, 4))):
            if mutant:
                most = min(len(mutant), header if rng.random() < 0.8 else len(mutant))
                at = int(rng.integers(most))
                mutant = changes[int(rng.integers(len(changes)))](mutant, at)
        made.append(mutant)
    return made


def test_damaged_files_are_refused_or_sound() -> None:
    """Each mutant is a learngene still, or an error of the caller's, and never a bug."""
    refused, count = 0, repetitions(20_000)
    for mutant in mutants(gene(), count):
        try:
            content = content_of_file(bytearray(mutant))
        except InvalidLearngene:
            refused += 1
        else:
            assert json.dumps([tensor.name for tensor in content.tensors]).encode()
    assert refused > count / 2
