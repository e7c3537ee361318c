"""Four processes that average: what each of them does, and what it saw, for the tests to judge."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import pickle
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from modelkin.errors import ModelkinError
from modelkin.federation.sharing import pairwise_masks
from modelkin.torch import ShardedMean
from modelkin.torch.federation import ranks, sharded_mean

WORLD = 4
WEIGHTS = (3, 1.5, 1, 700)
SIZES = (4, 1003)
LOST = 2
"""The rank that is killed."""

EXIT_CODES = "exit-codes"
PAGE = Path(__file__).parents[4] / "docs" / "federation.md"

Found = dict[Any, Any]


def update_of(rank: int, size: int, number: int = 0) -> Tensor:
    """The update of a rank in a round."""
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * number + rank))


def run_ranks(folder: str) -> None:
    """Fork the ranks from this process, which has one thread and has imported what all need; their
    exit codes are a file.
    """
    import torch._dynamo  # noqa: F401  as an optimizer does

    context = multiprocessing.get_context("fork")
    started = [context.Process(target=run, args=(rank, folder)) for rank in range(WORLD)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    Path(folder, EXIT_CODES).write_text(json.dumps([process.exitcode for process in started]))
    for process in started:
        process.kill()  # where it hangs


def run(rank: int, folder: str) -> None:
    """All cases in their order; each one's findings are a file of this rank."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    for case in (*CASES, killed):
        found = case(rank)
        Path(folder, f"{case.__name__}-{rank}").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


def error_of(call: Callable[[], Any]) -> tuple[str, str | None, str] | None:
    """The class, the field and the message of the error that a call raises."""
    try:
        call()
    except ModelkinError as error:
        return type(error).__name__, getattr(error, "field", None), str(error)
    return None


@contextmanager
def recorded(into: list[Tensor]) -> Iterator[None]:
    """Keep all tensors that this rank receives but the results."""
    original = ranks.Ranks.all_to_all

    def recording(
        own: ranks.Ranks, outgoing: Sequence[Tensor], incoming: Sequence[int]
    ) -> list[Tensor]:
        received = original(own, outgoing, incoming)
        into.extend(received)
        return received

    with mock.patch.object(ranks.Ranks, "all_to_all", recording):
        yield


def small_pieces() -> Any:
    """Pieces of 64 values of a shard."""
    return mock.patch.multiple(sharded_mean, STRETCH_VALUES=64, MIN_PIECE_VALUES=64)


def exact(rank: int) -> Found:
    """Any number of aggregators and of pieces."""
    found: Found = {}
    for size in SIZES:
        for aggregators in range(1, WORLD + 1):
            for pieces in (False, True):
                with small_pieces() if pieces else mock.MagicMock():
                    mean = ShardedMean(size, aggregators)
                result = mean(update_of(rank, size), weight=WEIGHTS[rank])
                found[size, aggregators, pieces] = result
    update = update_of(rank, SIZES[1]).requires_grad_()
    found["attached"] = ShardedMean(SIZES[1])(update[:, None].expand(-1, 2)[:, 0])
    return found


def seen(rank: int) -> Found:
    """What aggregators receive of each rank, plain and concealed."""
    found: Found = {}
    for conceal in (False, True):
        received: list[Tensor] = []
        mean = ShardedMean(4000, conceal=conceal)
        with recorded(received):
            result = mean(update_of(rank, 4000), weight=WEIGHTS[rank])
        roster = mean.roster.to_json()
        found[str(conceal)] = {"received": received, "result": result, "roster": roster}
    mean = ShardedMean(4000, conceal=True, one_in=4)
    found["one in 4"] = mean(update_of(rank, 4000), weight=WEIGHTS[rank])
    return found


def one_mask(rank: int) -> Found:
    """Two rounds with one value in four."""
    with small_pieces():
        mean = ShardedMean(1003, 3, one_in=4)
    results = [mean(update_of(rank, 1003, n), weight=WEIGHTS[rank]) for n in range(2)]
    return {"results": results, "roster": mean.roster.to_json()}


def own_masks(rank: int) -> Found:
    """Four rounds with shifts, of which the second half is another object with its state."""
    with small_pieces():
        first, second = (ShardedMean(1003, 3, one_in=4, masks="own") for _ in range(2))
    results, states = [], []
    for n in range(4):
        mean = first if n < 2 else second
        if n == 2:
            second.load_state_dict(first.state_dict())
        results.append(mean(update_of(rank, 1003, n), weight=WEIGHTS[rank]))
        states.append(mean.state_dict())
    other = error_of(lambda: ShardedMean(1003).load_state_dict(first.state_dict()))
    return {
        "results": results,
        "states": states,
        "roster": first.roster.to_json(),
        "other state": other,
    }


def rolled_back(rank: int) -> Found:
    """A concealed round again, with the state of before: in the same object, then in a new one."""
    mean = ShardedMean(100, conceal=True)
    before = mean.state_dict()
    first = mean(update_of(rank, 100))
    mean.load_state_dict(before)
    again = error_of(lambda: mean(update_of(rank, 100, 1)))
    new = ShardedMean(100, conceal=True)
    new.load_state_dict(before)
    return {"again": again, "first": first, "new": new(update_of(rank, 100))}


def in_inference_mode(rank: int) -> Found:
    """Rounds with shifts in inference mode and outside."""
    mean, update = ShardedMean(100, one_in=4, masks="own"), update_of(rank, 100)
    with torch.inference_mode():
        results = [mean(update * 1), mean(update)]
    return {"results": [*results, mean(update)]}


def wrong_updates(rank: int) -> Found:
    """Rank 1 calls with something that cannot be averaged, and then all call again."""
    mean, good = ShardedMean(10, conceal=True), update_of(rank, 10)
    wrong: dict[str, tuple[Any, Any]] = {
        "nan": (good * float("nan"), 1),
        "infinite": (good / 0, 1),
        "shape": (good[:9], 1),
        "dimensions": (good[None], 1),
        "dtype": (good.double(), 1),
        "list": (good.tolist(), 1),
        "sparse": (good.to_sparse(), 1),
        "large": (good * 2.0**100, 1),
        "weight 0": (good, 0),
        "weight nan": (good, float("nan")),
        "weight large": (good, 2.0**54),
        "weight text": (good, "ü" * 5000),
        "weight huge": (good, 10**400),
    }
    found: Found = {}
    for name, (update, weight) in wrong.items():
        given = (update, weight) if rank == 1 else (good, 1)
        found[name] = error_of(functools.partial(mean, given[0], weight=given[1]))
    found["result"] = mean(good)
    if rank == 0:
        mean.load_state_dict(mean.state_dict() | {"round": 2})
    found["rounds"] = error_of(lambda: mean(good))
    return found


def wrong_plans(rank: int) -> Found:
    """Rank 1 makes its object with other arguments than the rest, or with ones that cannot be."""
    wrong: dict[str, Found] = {
        "num_parameters": {"num_parameters": 11},
        "one_in": {"one_in": 2},
        "conceal": {"conceal": True},
        "masks": {"masks": "own"},
        "aggregators": {"aggregators": 2},
        "too many aggregators": {"aggregators": 5},
        "no aggregators": {"aggregators": 0},
        "no thinning": {"one_in": 0},
        "unknown masks": {"masks": "both"},
        "conceal own masks": {"conceal": True, "masks": "own"},
        "conceal text": {"conceal": "yes"},
        "timeout": {"timeout": 0},
    }
    found: Found = {}
    for name, other in wrong.items():
        arguments: Found = {"num_parameters": 10} | (other if rank == 1 else {})
        found[name] = error_of(functools.partial(ShardedMean, **arguments))
    with mock.patch.dict(os.environ, {"TORCH_GLOO_LAZY_INIT": "1"}):
        found["lazy"] = error_of(lambda: ShardedMean(10))
    return found


def false_masks(rank: int) -> Found:
    """Rank 3 adds a keystream that no other rank subtracts."""
    false = mock.patch.object(pairwise_masks, "pair_secret", return_value=bytes(32))
    with false if rank == 3 else nullcontext():
        mean = ShardedMean(100, conceal=True)
    begin = time.monotonic()
    return {
        "error": error_of(lambda: mean(update_of(rank, 100))),
        "again": error_of(lambda: mean(update_of(rank, 100))),
        "seconds": time.monotonic() - begin,
    }


def pairs(rank: int) -> Found:
    """Two groups of two ranks at once, which cannot conceal anything; and one of a rank alone."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = groups[rank % 2]
    mean = ShardedMean(50, group=mine)
    alone = dist.new_group([rank], use_local_synchronization=True)
    return {
        "alone": ShardedMean(50, group=alone)(update_of(rank, 50), weight=7),
        "result": mean(update_of(rank, 50), weight=WEIGHTS[rank]),
        "conceal": error_of(lambda: ShardedMean(50, conceal=True, group=mine)),
        "outside": error_of(lambda: ShardedMean(50, group=groups[1 - rank % 2])),
    }


def silent(rank: int) -> Found:
    """One rank does not call for longer than the timeout."""
    mean = ShardedMean(50, timeout=1.0)
    begin = time.monotonic()
    if rank == LOST:
        time.sleep(1.7)
    error = error_of(lambda: mean(update_of(rank, 50)))
    seconds = time.monotonic() - begin
    time.sleep(max(0.0, 2.2 - seconds))  # no rank ends its default group before another's call
    return {"error": error, "seconds": seconds}


def page(_: int) -> Found:
    """The example of docs/federation.md, where each rank has the digits of a clinic."""
    pattern = re.compile(r"^```(python.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    blocks = pattern.findall(PAGE.read_text())
    namespace: Found = {}
    exec(next(text for _, text in blocks if "\ndef samples(" in text), namespace)
    exec(next(text for kind, text in blocks if kind == "python no-run"), namespace)
    return {"average": namespace["average"], "loss": namespace["loss"].item()}


def killed(rank: int) -> Found:
    """A rank dies when its shards are on their way; the others go on in a group of their own."""
    mean = ShardedMean(1003, one_in=4, masks="own", timeout=20.0)
    for n in range(2):
        mean(update_of(rank, 1003, n), weight=WEIGHTS[rank])
    before = mean.state_dict()
    if rank == LOST:
        with mock.patch.object(ranks.Ranks, "share", kill_this_process):
            mean(update_of(rank, 1003, 2))
    begin = time.monotonic()
    error = error_of(lambda: mean(update_of(rank, 1003, 2), weight=WEIGHTS[rank]))
    seconds = time.monotonic() - begin
    left = [other for other in range(WORLD) if other != LOST]
    group = dist.new_group(left, use_local_synchronization=True)
    again = ShardedMean(1003, group=group)
    return {
        "error": error,
        "seconds": seconds,
        "before": before,
        "after": mean.state_dict(),
        "result": again(update_of(rank, 1003, 3), weight=WEIGHTS[rank]),
    }


def kill_this_process(*_: Any) -> None:
    """End as by a crash of the machine."""
    os.kill(os.getpid(), signal.SIGKILL)


CASES: tuple[Callable[[int], Found], ...] = (
    exact,
    seen,
    one_mask,
    own_masks,
    in_inference_mode,
    rolled_back,
    wrong_updates,
    wrong_plans,
    false_masks,
    pairs,
    page,
    silent,
)
