"""``client.merges.join``: all that a party does, by both clients, in memory and in files."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import modelkin
from modelkin import AsyncClient, Client
from modelkin.checkpoints import CheckpointSink, CheckpointValues, open_checkpoint
from modelkin.errors import ApiError, InvalidParameter, MergeFailed
from modelkin.federation.merging import party as merge_party
from tests.support.federations.sharing import fedavg, updates
from tests.support.http_space import Space

M = 3000
NAMES = [f"org/m{at}" for at in range(4)]


@pytest.fixture
def small(http: httpx.Client) -> Space:
    """A space of 3,000 parameters with four models."""
    space = Space(http, M)
    for name in NAMES:
        space.put(name, modelkin.Support.from_indices(range(0, M, 3), M))
    return space


def joined(
    url: str, space: Space, parties: dict[str, dict[str, Any]], **given: Any
) -> dict[str, Any]:
    """What each party's client returns, all at once."""

    def join(name: str) -> Any:
        with Client(url) as client:
            try:
                own = {"timeout": 60, **given, **parties[name]}
                return client.merges.join(space.name, "m", name, **own)
            except Exception as error:
                return error

    with ThreadPoolExecutor(len(parties)) as threads:
        return dict(zip(parties, threads.map(join, parties), strict=True))


@pytest.mark.slow
def test_four_parties_have_the_average(client: Client, small: Space) -> None:
    """Plain: FedAvg to the bit, by examples; the digest is the same for all."""
    client.merges.create(small.name, "m", members=NAMES, conceal=False, aggregators=3)
    vectors = updates(4, M)
    done = joined(
        client.url,
        small,
        {name: {"values": vectors[at], "examples": 10 * (at + 1)} for at, name in enumerate(NAMES)},
        conceal=False,
    )
    wanted = fedavg(vectors, [10.0, 20.0, 30.0, 40.0]).astype(np.float32)
    for merged in done.values():
        assert np.array_equal(wanted, merged.values)
        assert tuple(NAMES) == merged.members
    assert 1 == len({merged.digest for merged in done.values()})
    assert ["done"] == [info.state for info in client.merges.list(small.name)]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "released"), [(16 << 20, False), (1000, True)])
def test_cells_are_released_once_they_are_many(
    limit: int, released: bool, client: Client, small: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small merge costs no garbage collection, which would inspect all that the process holds."""
    monkeypatch.setattr(merge_party, "_MAX_UNRELEASED_BYTES", limit)
    made: list[bool] = []
    monkeypatch.setattr(merge_party, "gc", SimpleNamespace(collect=lambda: made.append(True)))
    client.merges.create(small.name, "m", members=NAMES, weights="equal", conceal=False)
    parties = {NAMES[at]: {"values": vector} for at, vector in enumerate(updates(4, M))}
    done = joined(client.url, small, parties, conceal=False)
    assert all(merged.values.size == M for merged in done.values()), done
    assert released == bool(made)


@pytest.mark.slow
def test_the_asynchronous_client_takes_part(client: Client, small: Space) -> None:
    """Concealed, with a group's secret, tensors, and a neutral party; progress is reported."""
    client.merges.create(small.name, "m", members=NAMES[:3], weights="equal", aggregators=4)
    vectors = updates(3, M)
    states: list[str] = []

    async def all_of_them() -> list[Any]:
        async with AsyncClient(client.url) as own:
            given: dict[str, Any] = {"group_secret": b"a secret of all parties", "timeout": 60}
            tensors = [torch.from_numpy(vector) for vector in vectors]
            return await asyncio.gather(
                *(
                    own.merges.join(small.name, "m", name, tensors[at], **given)
                    for at, name in enumerate(NAMES[:3])
                ),
                own.merges.join(
                    small.name,
                    "m",
                    "helper",
                    on_progress=lambda merge: states.append(merge.state),
                    **given,
                ),
            )

    for merged in asyncio.run(all_of_them()):
        assert np.abs(merged.values - fedavg(vectors, [1.0] * 3)).max() < 1e-8
    assert "done" == states[-1]


def tensors_of(seed: int) -> dict[str, torch.Tensor]:
    """A checkpoint of M parameters in three types, and a counter."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {
        "z.weight": torch.randn(20, 50, generator=generator),
        "a.weight": torch.randn(1500, generator=generator).to(torch.bfloat16),
        "b.weight": torch.randn(500, generator=generator).to(torch.float16),
    }
    return {**drawn, "steps": torch.tensor([seed])}


@pytest.mark.slow
def test_checkpoints_are_averaged_in_stretches(
    client: Client, small: Space, tmp_path: Path
) -> None:
    """The average has the types of the own checkpoint, and integers of its own."""
    client.merges.create(small.name, "m", members=NAMES, conceal=False)
    parties = {}
    for at, name in enumerate(NAMES):
        save_file(tensors_of(at), tmp_path / f"{at}.safetensors")
        opened = open_checkpoint(tmp_path / f"{at}.safetensors")
        parties[name] = {
            "values": CheckpointValues(opened),
            "output": CheckpointSink(tmp_path / f"{at}-merged.safetensors", opened),
            "examples": 1 + at,
        }
    done = joined(client.url, small, parties, conceal=False)
    assert all(merged.values is None for merged in done.values()), done
    flat = [flattened(tensors_of(at)) for at in range(4)]
    wanted = torch.from_numpy(fedavg(flat, [1.0, 2.0, 3.0, 4.0]).astype(np.float32))
    found = load_file(tmp_path / "2-merged.safetensors")
    at = 0
    for name in ("a.weight", "b.weight", "z.weight"):
        mine = tensors_of(2)[name]
        part = wanted[at : at + mine.numel()].reshape(mine.shape).to(mine.dtype)
        assert torch.equal(part, found[name])
        at += mine.numel()
    assert [2] == found["steps"].tolist()
    assert ["0", "1", "2", "3"] == sorted(p.name[0] for p in tmp_path.glob("*-merged*"))
    assert not list(tmp_path.glob(".*"))


def flattened(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    named = sorted((n, t) for n, t in tensors.items() if t.is_floating_point())
    return torch.cat([t.float().flatten() for _, t in named]).numpy()


@pytest.mark.slow
def test_differences_are_added_to_the_base(client: Client, small: Space, tmp_path: Path) -> None:
    """Of a merge of differences, one value in four moves, and the rest is the base's."""
    client.merges.create(
        small.name, "m", members=NAMES[:3], of="delta", one_in=4, conceal=False, weights="equal"
    )
    base = torch.randn(M, generator=torch.Generator().manual_seed(9))
    save_file({"w": base}, tmp_path / "base.safetensors")
    opened_base = open_checkpoint(tmp_path / "base.safetensors")
    parties = {}
    for at, name in enumerate(NAMES[:3]):
        path = tmp_path / f"{at}.safetensors"
        save_file({"w": base + 0.01 * (at + 1)}, path)
        opened = open_checkpoint(path)
        sink = CheckpointSink(tmp_path / f"{at}-merged.safetensors", opened, base=opened_base)
        parties[name] = {
            "values": CheckpointValues(opened, base=opened_base),
            "output": sink,
            "examples": 1,
        }
    done = joined(client.url, small, parties, conceal=False)
    assert not [each for each in done.values() if isinstance(each, Exception)], done
    moved = load_file(tmp_path / "0-merged.safetensors")["w"] - base
    kept = torch.nonzero(moved.abs() > 1e-6).flatten()
    assert abs(len(kept) - M // 4) < 4
    assert (moved[kept] - 4 * 0.02).abs().max() < 1e-5


@pytest.mark.slow
def test_a_failed_merge_leaves_no_file(client: Client, small: Space, tmp_path: Path) -> None:
    """Too few join in time: each party raises with the reason, and no file is left behind."""
    client.merges.create(small.name, "m", members=NAMES, deadline=1)
    save_file(tensors_of(0), tmp_path / "0.safetensors")
    opened = open_checkpoint(tmp_path / "0.safetensors")
    party = {
        "values": CheckpointValues(opened),
        "output": CheckpointSink(tmp_path / "merged.safetensors", opened),
        "examples": 1,
        "state": tmp_path / "state",
    }
    (error,) = joined(client.url, small, {NAMES[0]: party}).values()
    assert isinstance(error, MergeFailed)
    assert "1 members joined" in str(error)
    assert ["0.safetensors"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.slow
def test_the_state_is_private_and_checked(client: Client, small: Space, tmp_path: Path) -> None:
    """The file is for its owner alone; other values, another party or damage are refused."""
    client.merges.create(small.name, "m", members=NAMES)
    state, vector = tmp_path / "state", updates(1, M)[0]
    own: dict[str, Any] = {"examples": 1, "state": state, "timeout": 0.5}
    join: Callable[..., Any] = client.merges.join
    with pytest.raises(TimeoutError):
        join(small.name, "m", NAMES[0], vector, **own)
    assert 0o600 == stat.S_IMODE(state.stat().st_mode)
    with pytest.raises(InvalidParameter, match="values have changed"):
        join(small.name, "m", NAMES[0], vector + 1, **own)
    with pytest.raises(InvalidParameter, match="is the state of 'org/m0'"):
        join(small.name, "m", NAMES[1], vector, **own)
    key = json.loads(state.read_text())["private_key"]
    with pytest.raises(TimeoutError):
        join(small.name, "m", NAMES[0], vector, **own)
    assert key == json.loads(state.read_text())["private_key"]
    state.write_text("{}")
    with pytest.raises(InvalidParameter, match="not the state of a party"):
        join(small.name, "m", NAMES[0], vector, **own)


def test_wrong_arguments(client: Client, small: Space) -> None:
    """Values of another size, not finite, of no member, or of no merge."""
    client.merges.create(small.name, "m", members=NAMES)
    join: Callable[..., Any] = client.merges.join
    with pytest.raises(InvalidParameter, match="2999 parameters"):
        join(small.name, "m", NAMES[0], np.zeros(2999), examples=1)
    with pytest.raises(InvalidParameter, match="not finite"):
        join(small.name, "m", NAMES[0], np.full(M, np.nan), examples=1)
    with pytest.raises(InvalidParameter):
        join(small.name, "m", NAMES[0], np.zeros((2, M // 2)), examples=1)
    for merge, name, code in (("m", "org/other", "merge_not_found"), ("n", NAMES[0], "")):
        with pytest.raises(ApiError) as raised:
            join(small.name, merge, name, np.zeros(M), examples=1)
        assert code in raised.value.problem_code
