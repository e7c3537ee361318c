"""Measure a catalogue of a thousand bases: its bytes, what it finds offline, and its import.

Fingerprints have the tensors of models that are common as bases, and keys that are drawn. A child
has a part of the lines of one base, and others of its own.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.harness import Contender, Spread, race
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.service.http import service
from modelkin import Base, Catalogue, Fingerprint
from modelkin.cli import main
from modelkin.core.codecs.fingerprint import MAX_KEYS, SIGNATURE_BYTES
from modelkin.core.fingerprints.fingerprint import MAX_KEYS_A_TENSOR, MIN_KEYS
from modelkin.core.fingerprints.matrices import MIN_SIDE
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable

__all__ = ["LIBRARIES", "run"]

LIBRARIES = ("numpy", "zstandard", "fastapi", "sqlalchemy")
BASES, QUICK_BASES = 1_000, 8
ASKED, QUICK_ASKED = 100, 2
ROUNDS = 5
_BYTES = 60_000
"""Of a base at most: 60 MB of a thousand."""
_PARTS = (0.02, 0.9)
"""A child has from one to the other part of its base's lines."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder's matrices.

    Attributes:
        hidden: of the gated layers, or of each expert.
        keys: the width of the keys and values of attention.
        experts: how many take turns in a layer; 0 without.
    """

    name: str
    layers: int
    width: int
    hidden: int
    keys: int
    tokens: int
    experts: int = 0

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes."""
        yield "model.embed_tokens.weight", (self.tokens, self.width)
        for layer in range(self.layers):
            for part, shape in self._of_layer():
                yield f"model.layers.{layer}.{part}.weight", shape
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.tokens, self.width)

    def _of_layer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        wide, narrow = (self.width, self.width), (self.keys, self.width)
        yield from ((f"self_attn.{each}_proj", wide) for each in "qo")
        yield from ((f"self_attn.{each}_proj", narrow) for each in "kv")
        yield from (("input_layernorm", wide[:1]), ("post_attention_layernorm", wide[:1]))
        if self.experts:
            yield "mlp.gate", (self.experts, self.width)
        inner = [f"mlp.experts.{each}" for each in range(self.experts)] or ["mlp"]
        for each in inner:
            yield f"{each}.gate_proj", (self.hidden, self.width)
            yield f"{each}.up_proj", (self.hidden, self.width)
            yield f"{each}.down_proj", (self.width, self.hidden)


USUAL = (
    Shape("decoder, 1.5 B", 16, 2048, 8192, 512, 128_256),
    Shape("decoder, 7 B", 32, 4096, 11008, 4096, 32_000),
    Shape("decoder, 8 B", 32, 4096, 14336, 1024, 128_256),
    Shape("decoder, 70 B", 80, 8192, 28672, 1024, 128_256),
)
"""Those that the bases of the catalogue have in turn."""
OTHERS = (
    Shape("8 experts, 47 B", 32, 4096, 14336, 1024, 32_000, 8),
    Shape("256 experts, 700 B", 61, 7168, 2048, 1536, 129_280, 256),
)


def run(quick: bool) -> Findings:
    """Make the catalogue, ask it, and import it into a service."""
    count, asked = (QUICK_BASES, QUICK_ASKED) if quick else (BASES, ASKED)
    whole = {
        f"org-{number % 97}/base-{number:04}": made(USUAL[number % len(USUAL)], number)
        for number in range(count)
    }
    with TemporaryDirectory(prefix="modelkin-bench-") as folder:
        path = Path(folder, "bases.mkct")
        began = time.thread_time()
        Catalogue.of((_base(name), each) for name, each in whole.items()).save(path)
        built = time.thread_time() - began
        catalogue = Catalogue.load(path)
        rows = [_bytes_row(catalogue, whole), *_answers(catalogue, whole, asked)]
        times = [
            ["built of fingerprints", duration(built)],
            *_times(path, whole, 1 if quick else ROUNDS),
        ]
        times.append(
            [
                "imported into an empty service on SQLite, as time passed",
                duration(_imported(path, count)),
            ]
        )
    kept = [_kept(shape) for shape in (USUAL if quick else (*USUAL, *OTHERS))]
    columns = ["fingerprint of", "tensors", "bytes", "kept", "keys", "signatures"]
    return Findings(
        rows,
        [
            Table(f"Time of the processor, of {count:,} bases", ["", "takes"], times),
            Table("What a catalogue keeps", columns, kept),
        ],
    )


def made(shape: Shape, seed: int) -> Fingerprint:
    """A fingerprint by default settings, of lines that are all distinct."""
    draw = np.random.default_rng(seed)
    tensors = [_tensor(name, sides, draw) for name, sides in shape.tensors()]
    sides = [
        (number, length, lines)
        for number, tensor in enumerate(tensors)
        for length, lines in tensor.lines.items()
    ]
    owners, lengths, lines = np.array(sides, np.int64).T
    scale, most = 1, min(max(MIN_KEYS, MAX_KEYS_A_TENSOR * len(tensors)), MAX_KEYS)
    while lines.sum() / scale > most:
        scale *= 2
    held = draw.binomial(lines, 1 / scale)
    keys = draw.integers(0, (2**64 - 1) // scale, held.sum(), np.uint64, endpoint=True)
    order = np.argsort(keys)
    return Fingerprint(
        scale,
        tuple(tensors),
        {int(each): int(lines[lengths == each].sum()) for each in np.unique(lengths)},
        keys[order],
        np.repeat(owners, held)[order].astype(np.uint32),
        np.repeat(lengths, held)[order].astype(np.uint32),
    )


def _tensor(name: str, shape: tuple[int, ...], draw: np.random.Generator) -> LinesOfTensor:
    if len(shape) < 2 or min(shape) < MIN_SIDE:
        return LinesOfTensor((name,), shape, {}, NotComparable.SHORT)
    rows, columns = shape
    lines = {columns: rows, rows: columns} if rows != columns else {rows: rows + columns}
    return LinesOfTensor((name,), shape, lines, None, draw.bytes(SIGNATURE_BYTES))


def _child(base: Fingerprint, seed: int) -> Fingerprint:
    """A model of the same tensors, with a part of the base's lines."""
    draw = np.random.default_rng([seed, 1])  # of no base, whose seeds are numbers
    changed = draw.random(base.keys.size) >= draw.uniform(*_PARTS)
    last = (2**64 - 1) // base.scale
    keys = np.where(
        changed, draw.integers(0, last, changed.size, np.uint64, endpoint=True), base.keys
    )
    order = np.argsort(keys)
    owners, lengths = base.owners[order], base.lengths[order]
    return replace(base, keys=keys[order], owners=owners, lengths=lengths)


def _base(name: str) -> Base:
    return Base(name, f"https://huggingface.co/{name}", "0" * 40, "apache-2.0")


def _bytes_row(catalogue: Catalogue, whole: dict[str, Fingerprint]) -> Row:
    size, all_of_them = catalogue.size, sum(len(each.to_bytes()) for each in whole.values())
    most = _BYTES * len(whole)
    return Row(
        f"bytes of {len(whole):,} bases",
        f"{size / 1e6:.1f} MB",
        f"whole fingerprints: {all_of_them / 1e6:.1f} MB",
        f"{size / all_of_them:.2f}×",
        f"≤ {most / 1e6:g} MB",
        size <= most,
    )


def _answers(catalogue: Catalogue, whole: dict[str, Fingerprint], asked: int) -> Iterator[Row]:
    names = np.random.default_rng(0).choice(list(whole), asked, replace=False).tolist()
    right = sum(
        [name] == [parent.model for parent in catalogue.anatomy(_child(whole[name], at)).parents]
        for at, name in enumerate(names)
    )
    yield Row(
        f"children with {_PARTS[0]:.0%} to {_PARTS[1]:.0%} of a base's lines, told it and no other",
        f"{right} of {asked}",
        "",
        "",
        "all",
        right == asked,
    )
    told = sum(
        bool(catalogue.anatomy(made(USUAL[at % len(USUAL)], len(whole) + at)).parents)
        for at in range(asked)
    )
    yield Row("strangers that are told a base", f"{told} of {asked}", "", "", "0", told == 0)


def _times(path: Path, whole: dict[str, Fingerprint], rounds: int) -> Iterator[list[str]]:
    catalogue = Catalogue.load(path)
    base = next(iter(whole.values()))
    asked = {"a child": _child(base, 0), "a stranger": made(USUAL[0], len(whole))}
    ways = [Contender("file opened", partial(Catalogue.load, path))]
    ways += [
        Contender(f"{name} asked about, offline", partial(catalogue.anatomy, each))
        for name, each in asked.items()
    ]
    result = race(ways, rounds, time.thread_time)
    for each in ways:
        yield [each.name, _spread(result.seconds(each.name))]


def _imported(path: Path, count: int) -> float:
    """The seconds of the command, and of a service that answers each."""
    text = io.StringIO()
    with service() as (http, _), redirect_stdout(text), redirect_stderr(io.StringIO()):
        began = time.perf_counter()
        main(["catalogue", "import", str(path), "--url", str(http.base_url), "--json"])
        seconds = time.perf_counter() - began
    if json.loads(text.getvalue())["created"] != count:
        raise RuntimeError(f"not all of {count} bases were stored: {text.getvalue()}")
    return seconds


def _kept(shape: Shape) -> list[str]:
    whole = made(shape, 0)
    catalogue = Catalogue.of([(_base("org/base"), whole)])
    kept = catalogue.fingerprint("org/base")
    return [
        shape.name,
        f"{len(whole.tensors):,}",
        f"{len(whole.to_bytes()):,}",
        f"{catalogue['org/base'].size:,}",
        f"{kept.distinct.size:,}",
        "kept" if any(each.signature for each in kept.tensors) else "left out",
    ]


def _spread(seconds: Spread) -> str:
    return f"{duration(seconds.median)} ({duration(seconds.least)} – {duration(seconds.most)})"
