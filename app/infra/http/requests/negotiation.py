"""Media types of answers: which on offer an Accept header asks for (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from app.infra.errors import NotAcceptable

__all__ = ["choose"]


def choose(accept: str | None, offered: Sequence[str]) -> str:
    """The offered type that the header prefers; ties, and no header, go to the first offered.

    Raises:
        NotAcceptable: the header accepts no offered type.
    """
    if not accept or not accept.strip():
        return offered[0]
    wanted = [_parse(part) for part in accept.split(",") if part.strip()]
    best = max(offered, key=lambda offer: _quality(wanted, offer))
    if _quality(wanted, best) <= 0:
        raise NotAcceptable(f"this is answered as {', '.join(offered)}")
    return best


def _parse(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


def _quality(wanted: Sequence[tuple[str, float]], offer: str) -> float:
    """The quality of the most specific range that matches the offer; 0 if none does."""
    for pattern in (offer, offer.split("/")[0] + "/*", "*/*"):
        for name, quality in wanted:
            if name == pattern:
                return quality
    return 0.0
