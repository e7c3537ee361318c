"""The processes of the race of averages: a module of its own, which the first of them imports."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist

from modelkin.torch import ShardedMean

__all__ = ["CONCEALED", "GATHER", "PLAIN", "THINNED", "run_ranks"]

GATHER = "gather and broadcast"
PLAIN, CONCEALED, THINNED = "sharded", "sharded, concealed", "sharded, one in 16"


def run_ranks(ranks: int, folder: str, m: int, rounds: int) -> None:
    """Fork a process for each rank from this one, which has imported torch and uses no thread."""
    context = get_context("fork")
    started = [
        context.Process(target=_run_rank, args=(at, ranks, folder, m, rounds))
        for at in range(ranks)
    ]
    for rank in started:
        rank.start()
    for rank in started:
        rank.join()
    codes = [rank.exitcode for rank in started]
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")


def _run_rank(rank: int, ranks: int, folder: str, m: int, rounds: int) -> None:
    """Run all contenders in turn, and write their seconds to a file."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    update = torch.randn(m, generator=torch.Generator().manual_seed(rank))
    plain, concealed = ShardedMean(m), ShardedMean(m, conceal=True)
    thinned = ShardedMean(m, one_in=16)
    contenders: dict[str, Callable[[], object]] = {
        GATHER: lambda: _gathered(update, rank, ranks),
        PLAIN: lambda: plain(update),
        CONCEALED: lambda: concealed(update),
        THINNED: lambda: thinned(update),
        "all_reduce": lambda: dist.all_reduce(update.clone()),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 2):
        for name, call in contenders.items():
            seconds = _timed(call)
            if number >= 2:  # the first calls open connections
                times[name].append(seconds)
    if rank == 0:
        Path(folder, "times.json").write_text(json.dumps(times))
    dist.destroy_process_group()


def _timed(call: Callable[[], object]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - begin


def _gathered(update: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """One rank has all updates, as FedAvg's server, and sends their mean to all."""
    parts = [torch.empty_like(update) for _ in range(ranks)] if rank == 0 else None
    dist.gather(update, parts, dst=0)
    mean = torch.stack(parts).mean(0) if parts else torch.empty_like(update)
    dist.broadcast(mean, src=0)
    return mean
