"""``OnePass``: digests, selections and lines of checkpoints, from one pass over their files.

Tensors come in the order of their bytes. So a file that is fetched as it is read comes once, and
all that is asked of a tensor is answered while its bytes are at hand. The results are those of
``weights_digest``, ``select_from_checkpoint`` and ``fingerprint``, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin._threads import Counting, beside
from modelkin.checkpoints.importance import magnitudes
from modelkin.checkpoints.lines import PassLines
from modelkin.checkpoints.rounding import RoundingSamples
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.selection.largest import LargestEntries
from modelkin.core.weights import TensorDigest, WeightsDigest
from modelkin.errors import InvalidCheckpoint, ModelkinError

__all__ = ["OnePass"]

AfterFile = Callable[[frozenset[Path]], None]
"""A function of all files that are read no more, once one of them has been read to its end."""
Hold = Callable[[Path, int | None], None]
"""A function of a file, and of the first of its bytes that are read again before others are; None
for none."""
PART_SIZE: Final = 1 << 24
"""Values of a tensor for which all is done before the next ones are read."""

State = dict[str, npt.NDArray[Any]]
Took = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Step:
    """Something that is done with a tensor while its bytes are at hand.

    Attributes:
        tensor: the tensor by whose place in a file the step is ordered.
        offset: the first of its values that are read.
        size: how many values are read.
        run: does it, and calls a function with the number of values of each stretch.
        paths: the files that it reads.
        of_base: whether a base that cannot be read ends it, and not the pass.
        twice: the first byte of what it reads twice; None where it reads all once.
    """

    tensor: StoredTensor
    offset: int
    size: int
    run: Callable[[Took], None]
    paths: frozenset[Path]
    of_base: bool = False
    twice: int | None = None

    def place(self) -> tuple[Path, int, int]:
        """The key that orders steps."""
        return self.tensor.path, self.tensor.begin, self.offset


@dataclass(slots=True)
class OnePass:
    """What is asked of checkpoints, and the one pass that answers it.

    Ask first, then :meth:`read`; then what the questions returned has the answers.
    """

    base_errors: tuple[type[ModelkinError], ...] = (InvalidCheckpoint,)
    """The errors of a base that leave it without an answer, and end nothing."""
    _steps: list[_Step] = field(default_factory=list)
    _digests: list[WeightsDigest] = field(default_factory=list)
    _selections: list[LargestEntries] = field(default_factory=list)
    _lines: list[PassLines] = field(default_factory=list)
    _done: int = 0
    rounding: RoundingSamples = field(default_factory=RoundingSamples)
    """Stretches of the tensors that :meth:`compare` names."""
    most_twice: int = 0
    """The most bytes that are read twice before others are."""
    base_error: ModelkinError | None = None
    """Why nothing that was asked of a base has an answer; None where it has."""

    def digest(self) -> WeightsDigest:
        """Ask for a digest, of the tensors that :meth:`add_to` names."""
        self._digests.append(WeightsDigest())
        return self._digests[-1]

    def add_stored(self, digest: WeightsDigest, tensors: Sequence[StoredTensor]) -> None:
        """Have the tensors of files in a digest of exact copies."""
        for tensor in tensors:
            self.add_to(digest, tensor.name, tensor.shape, [tensor], dtype=tensor.dtype)

    def add_to(
        self,
        digest: WeightsDigest,
        name: str,
        shape: Sequence[int],
        pieces: Sequence[StoredTensor],
        beside: StoredTensor | None = None,
        of_base: bool = False,
        dtype: str | None = None,
    ) -> None:
        """Have a tensor of these pieces in a digest.

        Args:
            beside: the tensor that it is read beside; None for the first piece.
            of_base: whether the pieces are those of a base.
            dtype: as for :class:`modelkin.core.weights.TensorDigest`.
        """

        whole = TensorDigest(name, shape, dtype)
        parts = [part for piece in pieces for part in _parts(piece)]
        for at, part in enumerate(parts):

            def run(took: Took, part: StoredTensor = part, at: int = at) -> None:
                whole.add(_counted(part, took))
                if at + 1 == len(parts):
                    digest.take(whole)

            offset = sum(each.size for each in parts[:at])
            place = pieces[0] if beside is None else beside
            paths = frozenset([place.path, part.path])
            self._steps.append(_Step(place, offset, part.size, run, paths, of_base))

    def select(
        self,
        tensors: Sequence[StoredTensor],
        base: Sequence[StoredTensor] | None,
        most: int,
    ) -> LargestEntries:
        """Ask for the largest weights, or the largest differences from a base.

        Args:
            tensors: those of the model in the order of its parameters.
            base: those of the base, in the same order; None for the weights.
            most: the most indices that a support of them may have.
        """
        ends = list(accumulate((tensor.size for tensor in tensors), initial=0))
        found = LargestEntries(ends[-1], most)
        self._selections.append(found)
        for at, tensor in enumerate(tensors):
            others = None if base is None else _parts(base[at])
            paths = frozenset([tensor.path, *([] if base is None else [base[at].path])])
            offset = 0
            for number, part in enumerate(_parts(tensor)):
                other = None if others is None else others[number]

                def run(
                    took: Took,
                    part: StoredTensor = part,
                    other: StoredTensor | None = other,
                    begin: int = ends[at],
                    offset: int = offset,
                ) -> None:
                    index = begin + offset
                    for values in magnitudes(part, other, offset):
                        found.add(index, values)
                        index += values.size
                        took(values.size)

                step = _Step(tensor, offset, part.size, run, paths, base is not None)
                self._steps.append(step)
                offset += part.size
        return found

    def lines(self, tensors: Sequence[StoredTensor]) -> PassLines:
        """Ask for the lines of tensors, in the order of their fingerprint.

        A matrix is read twice, once its last bytes have come.
        """
        found = PassLines(tensors)
        self._lines.append(found)
        for part in found.parts():
            last, paths = part.first + part.size - 1, frozenset([part.tensor.path])
            step = _Step(part.tensor, last, part.size, part.run, paths, twice=part.begin)
            self._steps.append(step)
            self.most_twice = max(self.most_twice, part.num_bytes)
        return found

    def compare(self, tensor: StoredTensor, base: StoredTensor) -> None:
        """Have a stretch of a tensor and its base in :attr:`rounding`."""

        def run(took: Took) -> None:
            self.rounding.add(tensor, base)
            took(0)

        paths = frozenset([tensor.path, base.path])
        self._steps.append(_Step(tensor, 0, 0, run, paths, of_base=True))

    def read(
        self,
        count: Counting | None = None,
        after_file: AfterFile | None = None,
        hold: Hold | None = None,
        threads: int = 1,
    ) -> None:
        """Answer all that was asked.

        Args:
            count: is called as the values are read.
            after_file: is called after the last tensor of each file; :meth:`state` may be stored,
                after which :attr:`finished` has the same files.
            hold: is called where the bytes change that must stay at hand, since they are read
                again.
            threads: that read lines beside the rest, where more than one; then the bytes of a few
                tensors before are read again, and ``after_file`` and ``hold`` are not to be given.

        Raises:
            InvalidCheckpoint: a value is not finite, or a file ends early.
            OSError: a file cannot be read.
        """
        steps = self._plan()
        total = sum(step.size for step in steps)
        read = sum(step.size for step in steps[: self._done])

        counting = Lock()

        def took(size: int) -> None:
            nonlocal read
            with counting:
                read += size
                if count is not None:
                    count(read, total)

        if threads > 1:
            with beside(threads) as run:
                for step in steps[self._done :]:
                    if step.twice is None:
                        self._run(step, took)
                    else:
                        run(step.tensor, partial(step.run, took))
            self._done = len(steps)
            return
        held, before = _held(steps), None
        for at, step in enumerate(steps[self._done :], self._done):
            if hold is not None and before != (now := (step.tensor.path, held[at])):
                hold(*now)
                before = now
            self._run(step, took)
            self._done = at + 1
            last = self._done == len(steps) or steps[at + 1].tensor.path != step.tensor.path
            if last and after_file is not None:
                after_file(self.finished)

    @property
    def has_ended(self) -> bool:
        """Whether all that was asked has its answer."""
        return self._done == len(self._steps)

    @property
    def finished(self) -> frozenset[Path]:
        """The files that have been read and are read no more."""
        last = {path: at for at, step in enumerate(self._plan()) for path in step.paths}
        return frozenset(path for path, at in last.items() if at < self._done)

    def _run(self, step: _Step, took: Took) -> None:
        if step.of_base and self.base_error is not None:
            took(step.size)
            return
        try:
            step.run(took)
        except self.base_errors as error:
            if not step.of_base:
                raise
            self.base_error = error

    def state(self) -> State:
        """All that :meth:`restore` needs to go on, in arrays that ``numpy.savez`` takes."""
        facts = {
            "asked": self._asked(),
            "done": self._done,
            "digests": [digest.tensors for digest in self._digests],
            "rounding": self.rounding.state(),
            "base_error": None if self.base_error is None else str(self.base_error),
        }
        state: State = {"facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)}
        for at, selection in enumerate(self._selections):
            state |= {f"{at}.{name}": array for name, array in selection.state().items()}
        for at, lines in enumerate(self._lines):
            state |= {f"lines.{at}.{name}": array for name, array in lines.state().items()}
        return state

    def restore(self, state: State) -> None:
        """Go on from the state of a pass of which the same was asked.

        Raises:
            ValueError: something else was asked of that; nothing is restored.
        """
        facts = json.loads(state["facts"].tobytes())
        if facts["asked"] != self._asked():
            raise ValueError("something else was asked of it")
        for digest, tensors in zip(self._digests, facts["digests"], strict=True):
            digest.restore(tensors)
        for at, selection in enumerate(self._selections):
            prefix = f"{at}."
            selection.restore(
                {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
            )
        for at, lines in enumerate(self._lines):
            prefix = f"lines.{at}."
            lines.restore(
                {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
            )
        self.rounding.restore(facts["rounding"])
        if facts["base_error"] is not None:
            self.base_error = InvalidCheckpoint(facts["base_error"])
        self._done = facts["done"]

    def _plan(self) -> list[_Step]:
        """The steps in the order of the bytes that they read."""
        self._steps.sort(key=_Step.place)  # at each file again: sorted ones take no time
        return self._steps

    def _asked(self) -> str:
        """A digest of what is asked, whatever the folders of the files: what a state is good for.

        A selection of fewer entries has dropped some that one of more wants.
        """
        steps = [
            [step.tensor.path.name, step.tensor.name, step.offset, step.size, step.of_base]
            for step in self._plan()
        ]
        selections = [[each.num_parameters, each.most] for each in self._selections]
        asked = json.dumps([steps, selections, len(self._digests), len(self._lines)])
        return hashlib.sha256(asked.encode()).hexdigest()


def _held(steps: Sequence[_Step]) -> list[int | None]:
    """At each step the first byte of its file that this or a later step reads twice."""
    held, path, begin = list[int | None](), None, None
    for step in reversed(steps):
        if step.tensor.path != path:
            path, begin = step.tensor.path, None
        begin = begin if step.twice is None else step.twice
        held.append(begin)
    return held[::-1]


def _parts(tensor: StoredTensor) -> list[StoredTensor]:
    """The parts of a tensor that are read one after another."""
    if tensor.size <= PART_SIZE:
        return [tensor]
    return [
        tensor.piece(tensor.name, begin, (min(PART_SIZE, tensor.size - begin),))
        for begin in range(0, tensor.size, PART_SIZE)
    ]


def _counted(tensor: StoredTensor, took: Took) -> Iterator[npt.NDArray[Any]]:
    """Yield the values of a tensor, and say how many were taken."""
    for stretch in tensor.stretches():
        yield stretch
        took(stretch.size)
