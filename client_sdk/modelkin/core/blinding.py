"""``Blinding``: a secret order of the parameters, which hides what an index means.

Clients that share a key move the indices of their supports by the same permutation of ``[0, M)``.
All overlaps stay as they are, to the last index, and the service that counts them does not know
which parameters it counts. The octaves of an ordered support move with its indices, so ordered
similarities stay as they are, too. What this does not hide is in docs/privacy.md.

The permutation is a Feistel network over two digits of about ``sqrt(M)`` each with cycle walking
(Black and Rogaway, "Ciphers with arbitrary finite domains", 2002), in the ten rounds of FF1 (NIST
SP 800-38G). Its round functions are SHAKE256 of key and round (FIPS 202), computed once for all
values of a digit, which are at most 2^16. Beyond M = 2^32 there are three or four digits, and more
rounds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.importance import Origin
from modelkin.core.indices import IndexArray, check_num_parameters
from modelkin.core.kernels.choice import kernels
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["Blinding", "check_blinding"]

KEY_BYTES: Final = 32
_MAX_RADIX: Final = 1 << 16
_DRAW_BYTES: Final = 8
"""Bytes of the XOF for an entry of a table: modulo 2^16 at most, entries are even to 2^-48."""


_CHECK: Final = re.compile(r"shake256:[0-9a-f]{32}")


def check_blinding(check: Any) -> str:
    """A check value as :attr:`Blinding.check` gives it, or :class:`InvalidParameter`."""
    if not isinstance(check, str) or not _CHECK.fullmatch(check):
        raise InvalidParameter(
            f"blinding must be a check value, shake256: and 32 hexadecimal digits as "
            f"modelkin.Blinding(key, layout).check gives it, not {str(check)[:60]!r}",
            field="blinding",
        )
    return check


class Blinding:
    """The permutation of the indices of one layout under one key.

    A blinding never shows the key: not in its text, its pickles or its errors.
    """

    __slots__ = ("_check", "_given", "_key", "_layout", "_num_parameters", "_radices", "_tables")

    def __init__(self, key: str | bytes, layout: Layout | int) -> None:
        """The blinding of a space.

        Args:
            key: a key of :meth:`new_key`, as hex or as its 32 bytes.
            layout: the layout of the supports, or M where there is no layout. Other tensors give
                another permutation; the same in another order give the same.

        Raises:
            InvalidParameter: the key has not 32 bytes, or M is out of range.
        """
        self._key = _key_bytes(key)
        self._given = layout if isinstance(layout, Layout) else None
        self._layout = None if self._given is None else _by_name(self._given)
        m = layout.num_parameters if isinstance(layout, Layout) else layout
        self._num_parameters = check_num_parameters(m)
        self._check = f"shake256:{self.derived(b'check', 16).hex()}"
        self._radices = _radices(self._num_parameters)
        self._tables: npt.NDArray[np.uint16] | None = None

    @property
    def num_parameters(self) -> int:
        """M."""
        return self._num_parameters

    @property
    def layout(self) -> Layout | None:
        """The layout that supports are put in before they are blinded; None without one.

        Its tensors are sorted by name: members need not have theirs in one order.
        """
        return self._layout

    @staticmethod
    def new_key() -> str:
        """A random key of 256 bits, in hex: members of a space share it, the service has none."""
        return secrets.token_hex(KEY_BYTES)

    @property
    def check(self) -> str:
        """The key check value, which says nothing of the key, and which its holders can compute.

        Two blindings have the same one if and only if they are the same permutation of the same
        layout, but for chances of 2^-64.
        """
        return self._check

    @property
    def keeps_order(self) -> bool:
        """Whether :attr:`layout` is in the order that the blinding was made with."""
        return self._given is None or self._given == self._layout

    @property
    def radices(self) -> tuple[int, ...]:
        """The radices of the digits of an index, the highest first."""
        return self._radices

    def blind(self, support: Support) -> Support:
        """The support with each index where the permutation moves it.

        Its tensors are put in the order of :attr:`layout` first. A support whose own layout is not
        known is taken to have that which the blinding was made with.
        Its origin keeps the kind of importance and states the check value in place of the layout,
        which its indices do not follow any more.

        Raises:
            SpaceMismatch: the support has another M, or other tensors; names the first.
            InvalidParameter: it is blinded already.
        """
        origin = self.stated(support).origin
        return self._move(self._in_layout(support)).with_origin(origin)

    def stated(self, support: Support) -> Support:
        """The support as it is, with the origin of the blinded one: for callers that send no index.

        Raises:
            SpaceMismatch: the support has another M.
            InvalidParameter: it is blinded already.
        """
        self._require_size(support)
        origin = support.origin or Origin()
        if origin.blinding is not None:
            raise InvalidParameter(
                f"the support is blinded already, under {origin.blinding}: blind the original",
                field="support",
            )
        return support.with_origin(Origin(origin.importance, blinding=self._check))

    def unblind(self, support: Support) -> Support:
        """The support that :meth:`blind` made this one of.

        Raises:
            SpaceMismatch: the support has another M, or was blinded under another key or layout.
        """
        origin = support.origin or Origin()
        self._require_size(support)
        if origin.blinding not in (None, self._check):
            raise SpaceMismatch(
                f"the support was blinded under {origin.blinding}, and this key is {self._check}"
            )
        restored = Origin(origin.importance, self._layout)
        support = self._move(support, inverse=True).with_origin(restored)
        return support if self._given is None else support.reordered(self._given)

    def _in_layout(self, support: Support) -> Support:
        if self._layout is None:
            return support
        if support.origin is None or support.origin.layout is None:
            support = support.with_origin(Origin(layout=self._given))
        mine = None if support.origin is None else support.origin.layout
        assert mine is not None
        correspond(mine, self._layout).require_equal("it", "the blinding")
        return support.reordered(self._layout)

    def places(self, indices: IndexArray, *, inverse: bool = False) -> IndexArray:
        """The place to which the permutation moves each index, in the order of the indices."""
        tables = self.round_tables()
        moved: IndexArray = kernels().permute(
            indices, self._num_parameters, self._radices, tables, inverse
        )
        return moved

    def _move(self, support: Support, *, inverse: bool = False) -> Support:
        """The support of the permuted indices, each with its octave."""
        places, octaves = self.places(support.indices, inverse=inverse), support.octaves
        if octaves is None:
            places.sort()
        else:
            ascending = np.argsort(places)
            places, octaves = places[ascending], octaves[ascending]
        return Support.trusted(places, self._num_parameters, octaves=octaves)

    def _require_size(self, support: Support) -> None:
        if support.num_parameters != self._num_parameters:
            raise SpaceMismatch(
                f"the support is of {support.num_parameters} parameters, the blinding of "
                f"{self._num_parameters}"
            )

    def round_tables(self) -> npt.NDArray[np.uint16]:
        """The addend of a digit in each round, by the next digit; computed at the first use.

        Shape ``(rounds, the largest radix)``, as ``modelkin.core.kernels.reference.blinding`` takes
        them. They are as secret as the key.
        """
        if self._tables is None:
            digits = len(self._radices)
            width = max(self._radices)
            rows = []
            for turn in range(5 * digits * (digits - 1)):
                stream = self.derived(b"round %d" % turn, width * _DRAW_BYTES)
                draws = np.frombuffer(stream, "<u8") % np.uint64(self._radices[turn % digits])
                rows.append(draws.astype(np.uint16))
            self._tables = np.stack(rows)
        return self._tables

    def derived(self, purpose: bytes, count: int) -> bytes:
        """Bytes that depend on the key, the layout and the purpose, as secret as the key."""
        layout = b"" if self._layout is None else self._layout.digest.encode()
        parts = (b"modelkin blinding 1", self._key, b"%d" % self._num_parameters, layout, purpose)
        framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return hashlib.shake_256(framed).digest(count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blinding):
            return NotImplemented
        return self._check == other._check

    def __hash__(self) -> int:
        return hash(self._check)

    def __reduce__(self) -> Any:
        raise TypeError("a Blinding is not pickled: it holds a key. Make it again from the key")

    def __repr__(self) -> str:
        return f"<Blinding {self._check} of {self._num_parameters:,} parameters>"


def _by_name(layout: Layout) -> Layout:
    """Sort tensors by their names."""
    return Layout(tuple(sorted(layout.tensors, key=lambda tensor: tensor.name)))


def _key_bytes(key: Any) -> bytes:
    """The 32 bytes of a key; errors do not show it."""
    if isinstance(key, str):
        try:
            key = bytes.fromhex(key.strip())
        except ValueError:
            raise InvalidParameter(
                "the key is not hexadecimal: take what modelkin.Blinding.new_key() gives",
                field="key",
            ) from None
    if not isinstance(key, (bytes, bytearray)) or len(key) != KEY_BYTES:
        length = f"{len(key)} bytes" if isinstance(key, (bytes, bytearray)) else type(key).__name__
        raise InvalidParameter(f"the key must have {KEY_BYTES} bytes, not {length}", field="key")
    return bytes(key)


def _radices(num_parameters: int) -> tuple[int, ...]:
    """The radices of as few digits as have at most 2^16 values each; their product is M or more.

    All but the first are equal, and it is as small as M allows.
    """
    for count in (2, 3, 4):
        radix = _root(num_parameters, count)
        if radix <= _MAX_RADIX:
            break
    first = -(-num_parameters // radix ** (count - 1))
    return (first, *[radix] * (count - 1))


def _root(number: int, power: int) -> int:
    """The least whole number of which that power is at least the number."""
    root: int = round(number ** (1 / power))
    while root**power < number:
        root += 1
    while root > 1 and (root - 1) ** power >= number:
        root -= 1
    return root
