"""How long one round of an average takes at least: bytes by rates, for shards and seven others.

All of a method's parties transfer at once; computing and latency count nothing. A round has two
phases, and each ends with its slowest link: values go to who combines them, and the result comes
back. S is the size of an update, n the members, A the aggregators, c the ``one_in``:

=============  ===========================================================  ======================
method         first phase                                                  second phase
=============  ===========================================================  ======================
fedavg         ``max(n S / server_down, S / up)``                           the same, other way
soteriafl      the same with S / c
priprune       the same with S (1 - pruned)
secagg_plus    the same with S and 124 bytes for each neighbour, keys 64    S and 156 a neighbour
eris           ``max((n - 1) S / (A c down), S / (c up))``                  the same, other way
ako            ``(n - 1) S / (parts up)``                                   the same, other way
q_dpsgd_1      ``neighbors S bits / (32 up)``                               the same, other way
shatter        ``max(S / up, neighbors S / up, neighbors S / down)``, at once
=============  ===========================================================  ======================

The whole updates of ``eris`` are those of members that do not aggregate, so they are absent where
A = n. With ``masks="own"`` each member keeps other coordinates, and whole shards come back.

Source: ERIS, appendix F.2, equations 52 to 55, whose tables 2, 4 and 5 these formulas reproduce;
Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", 2020, for SecAgg+.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from modelkin.errors import InvalidParameter

__all__ = ["METHODS", "client_bytes", "distribution_time"]

_MOST: Final = 1e100
"""The largest argument: no product of such arguments overflows."""

_KEYS: Final = 2 * 32
"""Bytes of the two public keys of a member in SecAgg+."""

_SHARES: Final = 2 * 32 + 28
"""Bytes of a neighbour's shares of a key and of a seed, with nonce and tag."""

_REVEALED: Final = 32
"""Bytes of the share that a member reveals of each neighbour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """The arguments of :func:`distribution_time`, but for the rates."""

    n: int
    size: float
    aggregators: int | None = None
    one_in: float = 1.0
    masks: str = "one"
    pruned: float = 0.1
    neighbors: float | None = None
    parts: int = 5
    bits: float = 6.0

    def __post_init__(self) -> None:
        _check("n", self.n, 1, math.inf, whole=True)
        _check("size", self.size, 0, math.inf, above=True)
        _check("aggregators", self.holders, 1, self.n, whole=True)
        _check("one_in", self.one_in, 1, math.inf)
        _check("pruned", self.pruned, 0, 1)
        _check("neighbors", 0 if self.neighbors is None else self.neighbors, 0, math.inf)
        _check("parts", self.parts, 1, math.inf, whole=True)
        _check("bits", self.bits, 1, 32)
        if self.masks not in ("one", "own"):
            message = f"masks must be 'one' or 'own', not {self.masks!r}"
            raise InvalidParameter(message, field="masks")

    @property
    def holders(self) -> int:
        return self.n if self.aggregators is None else self.aggregators

    @property
    def kept(self) -> float:
        return self.size / self.one_in

    def degree(self, otherwise: float) -> float:
        return otherwise if self.neighbors is None else self.neighbors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Bytes a second, of every member and of the server."""

    up: float
    down: float
    server_up: float
    server_down: float


def distribution_time(
    method: str,
    *,
    n: int,
    size: float,
    up: float,
    down: float,
    server_up: float | None = None,
    server_down: float | None = None,
    aggregators: int | None = None,
    one_in: float = 1.0,
    masks: str = "one",
    pruned: float = 0.1,
    neighbors: float | None = None,
    parts: int = 5,
    bits: float = 6.0,
) -> float:
    """The least time of one round, in seconds.

    Args:
        method: one of :data:`METHODS`.
        n: members, all of which take part.
        size: the size of an update, in bytes; ``4 * M`` for float32.
        up: bytes a second that a member sends.
        down: bytes a second that a member receives.
        server_up: bytes a second that a server sends; None for ``up``. Not of serverless methods.
        server_down: bytes a second that a server receives; None for ``down``.
        aggregators: A of ``eris``, 1 to n; None for n.
        one_in: c of ``eris`` and ``soteriafl``: of c values one is sent.
        masks: for ``eris``, ``"one"``, or ``"own"`` with whole shards as results.
        pruned: the share of the values that ``priprune`` withholds.
        neighbors: neighbours in ``shatter`` (4 by default), in ``q_dpsgd_1`` (.4 (n - 1), a mean)
            and of ``secagg_plus`` (n - 1, and 32 at most).
        parts: for ``ako``, the parts of an update, of which each neighbour gets one a round.
        bits: for ``q_dpsgd_1``, the bits of a value.

    Raises:
        InvalidParameter: an unknown method, or an argument out of its range.
    """
    setting = _Setting(
        n=n, size=size, aggregators=aggregators, one_in=one_in, masks=masks, pruned=pruned,
        neighbors=neighbors, parts=parts, bits=bits,
    )  # fmt: skip
    rates = _Rates(
        up=up,
        down=down,
        server_up=up if server_up is None else server_up,
        server_down=down if server_down is None else server_down,
    )
    for field in _Rates.__slots__:
        _check(field, getattr(rates, field), 0, math.inf, above=True)
    sent, received = _bytes(method, setting)
    return _TIMES[method](setting, rates, sent, received)


def client_bytes(method: str, *, n: int, size: float, **options: Any) -> tuple[float, float]:
    """The bytes of one member in a round: of its values in the first phase, of results in the
    second; the arguments are those of :func:`distribution_time`.

    For ``eris`` they are of a member that aggregates where A = n, and of one that does not
    otherwise; what an aggregator gathers and passes on is not among them.

    Raises:
        InvalidParameter: as :func:`distribution_time`.
    """
    return _bytes(method, _Setting(n=n, size=size, **options))


def _bytes(method: str, setting: _Setting) -> tuple[float, float]:
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise InvalidParameter(f"no method {method!r}; there are {known}", field="method")
    return _BYTES[method](setting)


def _secagg_bytes(s: _Setting) -> tuple[float, float]:
    degree = s.degree(min(s.n - 1, 32))
    return s.size + _KEYS + degree * (_SHARES + _REVEALED), s.size + degree * (_KEYS + _SHARES)


def _eris_bytes(s: _Setting) -> tuple[float, float]:
    others = (s.n - 1) / s.n if s.holders == s.n else 1.0
    return others * s.kept, others * (s.kept if s.masks == "one" else s.size)


_BYTES: Final[dict[str, Callable[[_Setting], tuple[float, float]]]] = {
    "fedavg": lambda s: (s.size, s.size),
    "soteriafl": lambda s: (s.kept, s.kept),
    "priprune": lambda s: (s.size * (1 - s.pruned), s.size * (1 - s.pruned)),
    "shatter": lambda s: (s.size * s.degree(4), s.size * s.degree(4)),
    "ako": lambda s: (s.size * (s.n - 1) / s.parts, s.size * (s.n - 1) / s.parts),
    "q_dpsgd_1": lambda s: (
        s.size * s.bits / 32 * s.degree(0.4 * (s.n - 1)),
        s.size * s.bits / 32 * s.degree(0.4 * (s.n - 1)),
    ),
    "secagg_plus": _secagg_bytes,
    "eris": _eris_bytes,
}

METHODS: Final = tuple(_BYTES)
"""The methods by name."""


def _by_server(s: _Setting, rates: _Rates, sent: float, received: float) -> float:
    """Compute equation 52: in each phase the slower of the server's link and a member's."""
    gathered = max(s.n * sent / rates.server_down, sent / rates.up)
    return gathered + max(s.n * received / rates.server_up, received / rates.down)


def _by_peers(_: _Setting, rates: _Rates, sent: float, received: float) -> float:
    """Compute equation 54: every member sends, and then receives."""
    return sent / rates.up + received / rates.down


def _by_gossip(s: _Setting, rates: _Rates, sent: float, received: float) -> float:
    """Compute equation 55: one phase in which all send and receive at once."""
    return max(s.size / rates.up, sent / rates.up, received / rates.down)


def _by_shards(s: _Setting, rates: _Rates, *_: float) -> float:
    """Compute equation 53, with the whole-update terms for members that do not aggregate."""
    back = s.kept if s.masks == "one" else s.size
    gathered, spread = ((s.n - 1) * each / s.holders for each in (s.kept, back))
    if s.holders == s.n:
        return gathered / rates.down + spread / rates.up
    return max(gathered / rates.down, s.kept / rates.up) + max(spread / rates.up, back / rates.down)


_TIMES: Final[dict[str, Callable[[_Setting, _Rates, float, float], float]]] = {
    "fedavg": _by_server,
    "soteriafl": _by_server,
    "priprune": _by_server,
    "shatter": _by_gossip,
    "ako": _by_peers,
    "q_dpsgd_1": _by_peers,
    "secagg_plus": _by_server,
    "eris": _by_shards,
}


def _check(
    field: str, value: Any, least: float, most: float, *, whole: bool = False, above: bool = False
) -> None:
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if number and least <= value <= min(most, _MOST) and (value > least or not above):
        return
    kind = "a whole number" if whole else "a number"
    bound = f"above {least:g}" if above else f"{least:g} or more"
    limit = "" if most == math.inf else f", {most:g} at most"
    raise InvalidParameter(f"{field} must be {kind}, {bound}{limit}, not {value!r}", field=field)
