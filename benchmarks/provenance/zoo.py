"""Models that are trained here, and what hubs make of the first of each architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.provenance import surgery
from benchmarks.provenance.architectures import LAYERS, Architecture
from benchmarks.provenance.gguf_copies import save_gguf
from benchmarks.provenance.pairs import Pair
from benchmarks.provenance.stored import loaded, save
from benchmarks.provenance.surgery import Surgery
from benchmarks.provenance.text import TOKENS
from benchmarks.provenance.training import Course, adapt, classify, train, tune

__all__ = ["Family", "family", "untrained"]

RATE: Final = 1e-3
TRAININGS: Final = (
    Course(100, RATE, half=0, seed=0),
    Course(100, RATE, half=0, seed=1),
    Course(100, RATE, half=0, seed=2),
    Course(100, RATE, half=1, seed=3),
    Course(100, RATE, half=1, seed=4),
)
"""Models of one configuration: of one text, and of two that share no module."""
LIGHT: Final = Course(20, 1e-4, half=1, seed=10)
USUAL: Final = Course(60, 3e-4, half=1, seed=11)
AGAIN: Final = Course(60, 3e-4, half=0, seed=12)
HEAVY: Final = Course(100, RATE, half=1, seed=13)
LORA: Final = Course(60, RATE, half=1, seed=14)
HEALING: Final = Course(20, 3e-4, half=1, seed=15)
"""What follows upon another vocabulary, depth or width."""
UP_SCALED: Final = (0, 1, 2, 1, 2, 3)
DROPPED: Final = (0, LAYERS - 1)
FEWER_TOKENS: Final = 1200
MORE_TOKENS: Final = 64

ROUNDED: Final[dict[str, Surgery]] = {
    "8 bits, dequantised": surgery.rounded(8),
    "4 bits, dequantised": surgery.rounded(4, group=32),
}
ORDERED: Final[dict[str, Surgery]] = {
    "renamed": surgery.renamed,
    "fused or split": surgery.fused,
    "hidden units permuted": surgery.permuted_units,
    "residual stream permuted": surgery.permuted_stream,
    "half of the values pruned": surgery.pruned,
}
ONE_SEED: Final = "one random seed, other text (no derivative)"
ROTATED: Final = "residual stream rotated"
GGUF: Final = {"8 bits, GGUF": "Q8_0", "4 bits, GGUF": "Q4_0"}


@dataclass(frozen=True)
class Family:
    """The models of an architecture.

    Attributes:
        trainings: models of one configuration that were trained apart.
        kin: each derivative beside a model that it comes from.
        apart: pairs that are listed apart: what lines do not find, or what is no derivative.
    """

    trainings: list[Path]
    kin: list[Pair]
    apart: list[Pair] = field(default_factory=list)


def family(architecture: Architecture, folder: Path, seed: int) -> Family:
    """Train the models of an architecture, and derive others from the first of them.

    Args:
        architecture: theirs.
        folder: for them.
        seed: of the first of them. No two models begin with equal values, which lines would show.
    """
    courses = [replace(course, seed=seed + course.seed) for course in TRAININGS]
    trainings = [
        train(architecture, folder / f"{architecture.kind}-{at}", course)
        for at, course in enumerate(courses)
    ]
    base, other = trainings[:2]
    own = folder / f"{architecture.kind}-of-0"
    kin = [
        *untrained(base, architecture, own, FEWER_TOKENS),
        *_tuned(base, own),
        *_of_several(base, other, architecture, own),
        *_reshaped(base, architecture, own),
    ]
    return Family(trainings, kin, list(_apart(base, architecture, own, courses[0])))


def untrained(base: Path, architecture: Architecture, folder: Path, fewer: int) -> Iterator[Pair]:
    """What is made of a model without training it.

    Args:
        base: its folder.
        architecture: its architecture.
        folder: the beginning of the names of all folders.
        fewer: how many tokens a cut vocabulary has.
    """
    model = loaded(base)
    surgeries = ORDERED | ROUNDED | {"vocabulary cut": surgery.with_tokens(fewer)}
    for kind, change in surgeries.items():
        yield Pair(kind, save(change(model, architecture), _named(folder, kind)), base, True)
    for kind, stored in GGUF.items():
        yield Pair(kind, save_gguf(model, architecture, stored, _named(folder, kind)), base, True)


def _apart(base: Path, architecture: Architecture, folder: Path, course: Course) -> Iterator[Pair]:
    """A training from equal initial values on other text, and a rotated residual stream."""
    again = train(architecture, _named(folder, "seed"), replace(course, half=1))
    yield Pair(ONE_SEED, again, base, are_kin=False)
    if architecture.kind == "llama":
        turned = surgery.rotated(loaded(base), architecture)
        yield Pair(ROTATED, save(turned, _named(folder, "rotated")), base, are_kin=True)


def _named(folder: Path, kind: str) -> Path:
    words = "".join(char if char.isalnum() else "-" for char in kind)
    return folder.with_name(f"{folder.name}-{words}")


def _tuned(base: Path, folder: Path) -> Iterator[Pair]:
    made: dict[str, tuple[Callable[[Path, Path, Course], Path], Course]] = {
        "fine-tuned lightly": (tune, LIGHT),
        "fine-tuned": (tune, USUAL),
        "fine-tuned heavily": (tune, HEAVY),
        "LoRA merged": (adapt, LORA),
        "head changed": (classify, HEALING),
    }
    for kind, (change, course) in made.items():
        yield Pair(kind, change(base, _named(folder, kind), course), base, True)


def _of_several(
    base: Path, stranger: Path, architecture: Architecture, folder: Path
) -> Iterator[Pair]:
    """What is made of a model, its fine-tunes, and a stranger."""
    tuned = _named(folder, "fine-tuned")
    again = tune(base, _named(folder, "fine-tuned again"), AGAIN)
    first, second = loaded(tuned), loaded(again)
    average = save(surgery.averaged(first, second), _named(folder, "average"))
    yield Pair("average of two fine-tunes", average, base, True)
    yield Pair("average of two fine-tunes", average, tuned, True)
    model = loaded(base)
    halves = save(surgery.franken(model, loaded(stranger), architecture), _named(folder, "halves"))
    yield Pair("layers of two strangers", halves, base, True)
    yield Pair("layers of two strangers", halves, stranger, True)
    mixed = surgery.experts(model, [model, first, second], architecture)
    yield Pair("mixture of experts", save(mixed, _named(folder, "experts")), base, True)


def _reshaped(base: Path, architecture: Architecture, folder: Path) -> Iterator[Pair]:
    """Other vocabularies, depths and widths, trained for some steps as their makers do."""
    surgeries = {
        "vocabulary grown": surgery.with_tokens(TOKENS + MORE_TOKENS),
        "up-scaled": surgery.with_layers(UP_SCALED),
        "layers dropped": surgery.with_layers(DROPPED),
        "hidden units pruned": surgery.narrowed,
    }
    model = loaded(base)
    for kind, change in surgeries.items():
        raw = save(change(model, architecture), _named(folder, f"{kind} raw"))
        yield Pair(kind, tune(raw, _named(folder, kind), HEALING), base, True)
