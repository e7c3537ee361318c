"""The ranks of a process group: small records, cells and results between them, with a timeout."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from modelkin.errors import InvalidParameter, MergeFailed

__all__ = ["Ranks"]

_RECORD_BYTES: Final = 4096
MAX_MESSAGE: Final = 600
"""The most characters of an error that travel to the other ranks, up to six bytes each."""


class Ranks:
    """A new group over the ranks of a given one, with a timeout of its own.

    A failure of any rank fails the group: its connections are closed, which the other ranks notice,
    and the group is not used again.

    Args:
        group: the ranks; None for all.
        timeout: the seconds that each exchange may take.

    Raises:
        InvalidParameter: ``torch.distributed`` is not initialised, or this rank is not in the
            group.
        MergeFailed: the other ranks do not join within the timeout.
    """

    def __init__(self, group: dist.ProcessGroup | None, timeout: float) -> None:
        _check_initialized()
        ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        self._names: tuple[int, ...] = tuple(ranks)
        if dist.get_rank() not in ranks:
            raise InvalidParameter("this rank is not in the group", field="group")
        self.place, self.size = ranks.index(dist.get_rank()), len(ranks)
        self._timeout, self._failure = timeout, ""
        backend = str(dist.get_backend(group))
        self.device = torch.device("cpu")
        if "nccl" in backend and "gloo" not in backend:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._group: Any = None
        self._group = self._guard(lambda: _own_group(ranks, backend, timeout))

    def name(self, place: int) -> str:
        """The name of a rank in messages: its number in the whole world."""
        return f"rank {self._names[place]}"

    def exchange(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Exchange small JSON objects; return the records of all ranks, in their order.

        Raises:
            MergeFailed: a rank is lost.
        """
        data = json.dumps(record).encode()
        assert len(data) <= _RECORD_BYTES, "a record is small"
        padded = data.ljust(_RECORD_BYTES)
        mine = torch.frombuffer(bytearray(padded), dtype=torch.uint8).to(self.device)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._guard(lambda: dist.all_gather(every, mine, group=self._group))
        return [json.loads(bytes(each.cpu().numpy())) for each in every]

    def all_to_all(self, outgoing: Sequence[Tensor], incoming: Sequence[int]) -> list[Tensor]:
        """Send one tensor to each rank, and receive one from each. No rank reduces anything.

        Args:
            outgoing: the tensors by receiver, of one dtype; they may be empty.
            incoming: the number of values by sender.

        Raises:
            MergeFailed: a rank is lost.
        """
        sent = torch.cat(list(outgoing))
        received = sent.new_empty(sum(incoming))
        self._guard(
            lambda: dist.all_to_all_single(
                received, sent, list(incoming), [len(t) for t in outgoing], group=self._group
            )
        )
        return list(received.split(list(incoming)))

    def share(self, tensors: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Send the tensor of each holder to all ranks.

        Args:
            tensors: the tensors by the holder's place; every rank gives the same places, sizes and
                dtype, but only the holder's values count.

        Returns:
            The holders' tensors, by place.

        Raises:
            MergeFailed: a rank is lost.
        """
        if len(tensors) == self.size:
            return self._gather(tensors)

        def one_by_one() -> None:
            # One after the other: gloo closes no connection during a broadcast, so a rank that
            # notices a failure could not pass it on.
            for place, tensor in tensors.items():
                dist.broadcast(tensor, self._names[place], group=self._group)

        self._guard(one_by_one)
        return dict(tensors)

    def _gather(self, tensors: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Share in a single all-gather, where each rank holds a tensor."""
        most = max(len(tensor) for tensor in tensors.values())
        mine = tensors[self.place]
        padded = mine if len(mine) == most else mine.new_zeros(most)
        padded[: len(mine)] = mine
        every = list(mine.new_empty(self.size * most).split(most))
        self._guard(lambda: dist.all_gather(every, padded, group=self._group))
        return {place: every[place][: len(tensor)] for place, tensor in tensors.items()}

    def fail(self, reason: str) -> MergeFailed:
        """End the group, and return the error to raise."""
        self._failure, ended = self._failure or reason, self._group
        self._group = None
        if ended is not None:
            # The group is broken, or ended with the world.
            with contextlib.suppress(RuntimeError, ValueError):
                dist.destroy_process_group(ended)
        return MergeFailed(reason)

    def _guard(self, call: Callable[[], Any]) -> Any:
        if self._failure:
            raise MergeFailed(f"this group has failed, and a new one is needed: {self._failure}")
        try:
            return call()
        except (RuntimeError, ValueError) as error:  # gloo or nccl failed; the group is gone
            reason = str(error).strip().splitlines()[0].rpartition("gloo/")[2][:120]
            raise self.fail(
                f"a rank was lost, or did not answer within {self._timeout:g} seconds; nothing "
                f"has moved: make a new group of the ranks that are left ({reason})"
            ) from error


def _check_initialized() -> None:
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidParameter(
            "call torch.distributed.init_process_group first, on every rank", field="group"
        )
    if os.environ.get("TORCH_GLOO_LAZY_INIT") == "1":
        raise InvalidParameter(
            "unset TORCH_GLOO_LAZY_INIT: with it gloo waits without end for a rank that is lost",
            field="group",
        )


def _own_group(ranks: list[int], backend: str, timeout: float) -> Any:
    """A group of the same ranks and backend; ranks outside it need not take part."""
    return dist.new_group(
        ranks,
        timeout=timedelta(seconds=timeout),
        backend=backend if backend in ("gloo", "nccl") else None,  # None: by device
        use_local_synchronization=len(ranks) < dist.get_world_size(),
    )
