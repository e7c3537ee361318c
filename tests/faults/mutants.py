"""Damaged payloads for every decoder, in a process of bounded memory.

``python -m tests.faults.mutants --count 10000000`` damages good payloads at random, half of them
with their checksum right again, and gives each to its decoder: the end is a value that can be
written and read again, or an error of the package. It prints a line of figures, and exits with 1
at any other end, with the mutant that did it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import struct
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import numpy as np

from app.models.catalog.endpoints.line_fields import read_fields
from modelkin import Subspace, Support, wire
from modelkin.checkpoints.gguf.header import parse_gguf_header
from modelkin.checkpoints.gguf.opening import tensors_of
from modelkin.checkpoints.indexes import owners_of, parse_index, parse_pipeline
from modelkin.checkpoints.repository import choose, components
from modelkin.core.adapters.config import AdapterConfig
from modelkin.core.file_formats import describe_beginning
from modelkin.core.octaves import last_octave, octave_sizes
from modelkin.core.safetensors_header import parse_header
from modelkin.errors import ModelkinError
from tests.sdk.wire import fingerprints
from tests.support.models.adapter_files import DESCRIPTIONS, read_described
from tests.support.models.gguf_files import gguf_headers
from tests.support.models.learngene_files import gene
from tests.support.models.quantised_mutants import ORIGINALS, damaged, read_damaged

__all__ = ["FORMATS", "Format", "main", "mutant_of"]

_M: Final = 3_000
_BLOCK: Final = 1_000
"""Mutants of one seed: any block can be made again without those before it."""
_ROOM: Final = 256 << 20
"""Bytes of address space that decoding may take beyond what the process has."""
_SLOW_S: Final = 2.0
_WIDTHS: Final = ("<B", "<H", "<I", "<Q")


@dataclass(frozen=True)
class Format:
    """A format that comes from outside.

    Attributes:
        originals: good payloads.
        decode: returns what it reads, and that as it is written again, if it is.
        has_checksum: a CRC-32 is at the end.
        damage: damages a payload where any bytes would not do.
    """

    name: str
    originals: tuple[bytes, ...]
    decode: Callable[[bytes], tuple[object, bytes | None]]
    has_checksum: bool = False
    damage: Callable[[random.Random, bytes], bytes] | None = None


def _support(step: int, m: int = _M) -> Support:
    return Support.from_indices(range(0, m, step), m)


def _ordered(support: Support) -> Support:
    octaves = np.repeat(np.arange(last_octave(support.k) + 1), octave_sizes(support.k))
    return Support(support.indices, support.num_parameters, octaves=octaves)


_BEFORE: Final = _support(7)
_SUPPORTS: Final = (_support(7), _support(50), _ordered(_support(11)))
_SIGNATURE: Final = _support(7).signature()
_SUBSPACE: Final = Subspace.of_basis(np.eye(6)[:, :2])
_CONFIG: Final = json.dumps(
    {
        "peft_type": "LORA",
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {"q_proj": 4},
        "alpha_pattern": {},
        "use_rslora": False,
    }
).encode()
_CELL: Final = wire.CellHeader(
    wire.Kind.FLOAT32, wire.Sealing.CLEAR, 3, 2, 9, 1, 0, 5, 6, bytes(range(32))
)
_LINE: Final = json.dumps(
    {
        "model": "org/a",
        "support": {"indices": [1, 5, 900]},
        "tags": ["x"],
        "attributes": {"n": 1},
        "base_model": "org/b",
    }
).encode()

_INDEX: Final = json.dumps(
    {"weight_map": {f"w.{i}": f"model-0000{i % 2 + 1}-of-00002.safetensors" for i in range(4)}}
).encode()
_PIPELINE: Final = b'{"_class_name": "P", "unet": ["diffusers", "UNet"], "vae": [null]}'
_NAMES: Final = (
    b"m.safetensors.index.json\nm-00001-of-00002.safetensors\nm-00002-of-00002.safetensors",
    b"model_index.json\nunet/model.fp16.safetensors\nvae/diffusion_pytorch_model.safetensors\nx.bin",
)


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _of_support(media_type: str, data: bytes) -> tuple[object, bytes | None]:
    support = wire.load_support(data, media_type, _M, _M)
    return support, wire.dump_support(support, media_type)


def _of_signature(media_type: str, data: bytes) -> tuple[object, bytes | None]:
    signature = wire.load_signature(data, media_type, _M)
    return signature, wire.dump_signature(signature, media_type)


def _of_subspace(media_type: str, data: bytes) -> tuple[object, bytes | None]:
    subspace = wire.load_subspace(data, media_type, max_columns=64)
    return subspace, wire.dump_subspace(subspace, media_type)


def _of_sketch(data: bytes) -> tuple[object, bytes | None]:
    sketch = wire.decode_sketch(data, num_parameters=_M)
    return sketch, wire.encode_sketch(sketch)


def _of_fingerprint(data: bytes) -> tuple[object, bytes | None]:
    """A fingerprint, of which these are the only header, digest and columns."""
    found = wire.decode_fingerprint(data)
    written = wire.encode_fingerprint(found)
    header = fingerprints.START.size + 32
    assert data[:header] == written[:header], "what it reads has other columns"
    return (found, found.digest), written


def _damaged_fingerprint(draw: random.Random, data: bytes) -> bytes:
    """Damaged anywhere, or in its columns alone."""
    if draw.random() < 0.5:
        return mutant_of(draw, data, has_checksum=True)
    return fingerprints.damaged(draw, data)


def _only(decode: Callable[[bytes], object], data: bytes) -> tuple[object, bytes | None]:
    return decode(data), None


def _of_safetensors(data: bytes) -> object:
    length = int.from_bytes(data[:8], "little")
    return parse_header(data[8 : 8 + length], len(data), "a.safetensors")


def _of_gguf(data: bytes) -> object:
    """The tensors of a file, with their values where the header stands."""
    header = parse_gguf_header(io.BytesIO(data), len(data), "a.gguf")
    with NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        tensors, remarks = tensors_of([(Path(file.name), header)])
        return [sum(len(s) for s in t.stretches()) for t in tensors if t.dtype[0] != "I"], remarks


def _of_index(data: bytes) -> object:
    """What an index says, of shards that hold other tensors than it names."""
    said = parse_index(data, "model.safetensors.index.json")
    held = {file: [name] for name, file in said.items()}
    return [owners_of(said, held, whole, "an index") for whole in (True, False)]


def _of_names(data: bytes) -> object:
    """The choice among files, one name a line."""
    files = data.decode(errors="replace").split("\n")
    choice = choose(files, "org/a")
    if choice.kind == "index":
        return choice.follow(files, "org/a")
    if choice.kind == "pipeline":
        return components(choice, ("unet", "vae"), files, "org/a")
    return choice


def _dumped(media_type: str, *supports: Support) -> tuple[bytes, ...]:
    return tuple(wire.dump_support(support, media_type) for support in supports)


FORMATS: Final = (
    Format("support", _dumped(wire.SUPPORT, *_SUPPORTS), partial(_of_support, wire.SUPPORT), True),
    Format("roaring", _dumped(wire.ROARING, *_SUPPORTS[:2]), partial(_of_support, wire.ROARING)),
    Format("raw", _dumped(wire.RAW, *_SUPPORTS[:2]), partial(_of_support, wire.RAW)),
    Format("json", _dumped(wire.JSON, _SUPPORTS[1], _SUPPORTS[2]), partial(_of_support, wire.JSON)),
    Format(
        "signature",
        (wire.dump_signature(_SIGNATURE, wire.SIGNATURE),),
        partial(_of_signature, wire.SIGNATURE),
        True,
    ),
    Format(
        "signature-json",
        (wire.dump_signature(_SIGNATURE, wire.JSON),),
        partial(_of_signature, wire.JSON),
    ),
    Format("sketch", (_support(7).sketch().to_bytes(),), _of_sketch, True),
    Format(
        "delta",
        (wire.encode_patch(_BEFORE, _support(9)), wire.encode_patch(_BEFORE, _support(14))),
        partial(_only, lambda data: wire.decode_patch(data, _BEFORE, max_k=_M)),
        True,
    ),
    Format(
        "delta-json",
        (_text({"added": [1, 2], "removed": [7]}),),
        partial(_only, lambda data: wire.load_json_patch(data, _M)),
    ),
    Format(
        "subspace",
        (wire.dump_subspace(_SUBSPACE, wire.SUBSPACE),),
        partial(_of_subspace, wire.SUBSPACE),
        True,
    ),
    Format(
        "subspace-npy",
        (wire.dump_subspace(_SUBSPACE, wire.NPY),),
        partial(_of_subspace, wire.NPY),
    ),
    Format(
        "subspace-json",
        (wire.dump_subspace(_SUBSPACE, wire.JSON),),
        partial(_of_subspace, wire.JSON),
    ),
    Format(
        "fingerprint",
        tuple(fingerprints.drawn(seed, 5, lines=4).to_bytes() for seed in range(9)),
        _of_fingerprint,
        damage=_damaged_fingerprint,
    ),
    Format(
        "cell",
        (wire.encode_cell(_CELL, bytes(_CELL.payload_bytes)),),
        partial(_only, wire.decode_cell),
        True,
    ),
    Format("safetensors", (gene(), gene(0, w=(3,))), partial(_only, _of_safetensors)),
    Format("gguf", tuple(gguf_headers()), partial(_only, _of_gguf)),
    Format("file-beginning", (b"GGUF", _CONFIG, gene()[:99]), partial(_only, describe_beginning)),
    Format("shard-index", (_INDEX,), partial(_only, _of_index)),
    Format("pipeline", (_PIPELINE,), partial(_only, lambda d: parse_pipeline(d, "a pipeline"))),
    Format("file-names", _NAMES, partial(_only, _of_names)),
    Format("adapter-config", (_CONFIG,), partial(_only, AdapterConfig.from_json)),
    Format("adapter", DESCRIPTIONS, partial(_only, read_described)),
    Format("batch-line", (_LINE,), partial(_only, read_fields)),
    Format("quantised", ORIGINALS, partial(_only, read_damaged), damage=damaged),
)


def mutant_of(draw: random.Random, original: bytes, *, has_checksum: bool) -> bytes:
    """One to four damages, and then perhaps a checksum that is right."""
    data = bytearray(original)
    for _ in range(draw.randint(1, 4)):
        if data:
            draw.choice(_DAMAGES)(draw, data)
    if has_checksum and draw.random() < 0.5:
        body = bytes(data[:-4])
        return body + struct.pack("<I", zlib.crc32(body))
    return bytes(data)


def _set_byte(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] = draw.randrange(256)


def _flip_bit(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set_number(draw: random.Random, data: bytearray) -> None:
    """An extreme, or a small number, anywhere near the front, where headers are."""
    kind = draw.choice(_WIDTHS)
    most = 256 ** struct.calcsize(kind) - 1
    value = draw.choice((0, 1, most, most // 2, most // 2 + 1, draw.randrange(min(most, 5000) + 1)))
    at = draw.randrange(min(len(data), 80))
    data[at : at + struct.calcsize(kind)] = struct.pack(kind, value)


def _cut(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


def _remove(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.randint(1, 8)]


def _repeat(draw: random.Random, data: bytearray) -> None:
    begin, at = draw.randrange(len(data)), draw.randrange(len(data))
    data[at:at] = data[begin : begin + draw.randint(1, 32)]


def _insert_text(draw: random.Random, data: bytearray) -> None:
    """What JSON readers stumble over."""
    at = draw.randrange(len(data))
    data[at:at] = draw.choice(_TEXTS)


_TEXTS: Final = (
    *(b"[" * 40, b"{", b"]", b",", b'"', b"-", b"1e400", b"NaN", b"-0", b"1.0", b"null", b"true"),
    *(b"\\ud800", b"\\u0000", b"\xff", b"\xef\xbb\xbf", b"9" * 40, b'{"a":1,"a":2}', b"Infinity"),
)
_DAMAGES: Final = (*(_set_byte, _flip_bit, _set_number, _cut, _remove, _repeat, _insert_text),)


class Tally:
    """The ends of the mutants.

    Attributes:
        ends: how many of each format were read, and how many refused.
        slowest: the seconds of the slowest, and its format.
    """

    def __init__(self) -> None:
        self.ends: Counter[tuple[str, str]] = Counter()
        self.slowest = 0.0, ""

    def feed(self, kind: Format, mutant: bytes) -> None:
        """Give a mutant to its decoder; raises unless it comes to a good end."""
        began = time.thread_time()
        try:
            value, written = kind.decode(mutant)
            if written is not None:
                again, _ = kind.decode(written)
                assert repr(again) == repr(value), "what it reads is written as something else"
            end = "read"
        except ModelkinError:
            end = "refused"
        took = time.thread_time() - began
        self.slowest = max(self.slowest, (took, kind.name))
        self.ends[kind.name, end] += 1


def run(count: int, seed: int, formats: Sequence[Format] = FORMATS) -> Tally:
    """Damage and decode so many; the formats come in turn."""
    tally = Tally()
    for block in range(-(-count // _BLOCK)):
        draw = random.Random(f"{seed}/{block}")
        for number in range(min(_BLOCK, count - block * _BLOCK)):
            kind = formats[number % len(formats)]
            original = draw.choice(kind.originals)
            if kind.damage is None:
                mutant = mutant_of(draw, original, has_checksum=kind.has_checksum)
            else:
                mutant = kind.damage(draw, original)
            try:
                tally.feed(kind, mutant)
            except BaseException:
                _say(f"{kind.name}, seed {seed}, block {block}, number {number}: {mutant.hex()}")
                raise
    return tally


def bound_memory(room: int) -> None:
    """Let this process have little more address space than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> int:
    """Exit 1 where a mutant came to another end, or took long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1906)
    parser.add_argument("--format", choices=[kind.name for kind in FORMATS], help="only these")
    parser.add_argument("--room", type=int, default=_ROOM, help="bytes of memory for decoding")
    asked = parser.parse_args()
    formats = [kind for kind in FORMATS if asked.format in (None, kind.name)]
    for kind in formats:  # what a first call compiles and imports does not count as a mutant's
        for original in kind.originals:
            kind.decode(original)
    bound_memory(asked.room)
    warnings.simplefilter("error")
    began = time.perf_counter()
    try:
        tally = run(asked.count, asked.seed, formats)
    except BaseException:
        traceback.print_exc()
        return 1
    took = time.perf_counter() - began
    read = sum(many for (_, end), many in tally.ends.items() if end == "read")
    fed = len({name for name, _ in tally.ends})
    _say(
        f"{asked.count:,} mutants of {fed} formats, {read:,} of them read, the others refused; "
        f"slowest {tally.slowest[0] * 1000:.0f} ms ({tally.slowest[1]}), "
        f"{asked.count / took:,.0f} a second, seed {asked.seed}"
    )
    return int(tally.slowest[0] > _SLOW_S)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
