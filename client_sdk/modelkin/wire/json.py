"""The JSON shapes of supports, patches and signatures, and the strict reading of JSON.

JSON's own types are strict: ``true``, ``1.0`` and ``"1"`` are not integers. Errors quote untrusted
values in ASCII and shortened, so that an answer with them can always be encoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy.typing as npt

from modelkin.core.codecs.checks import Payload, check_k
from modelkin.core.gaps import MAX_RANGES
from modelkin.core.patch import Patch
from modelkin.core.quoting import quote
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidInput, InvalidSignature, InvalidSupport
from modelkin.wire.json_structure import check_structure

__all__ = [
    "patch_from_json",
    "patch_to_json",
    "dump_json",
    "parse_json",
    "signature_from_json",
    "signature_to_json",
    "support_from_json",
    "support_json_pieces",
    "support_to_json",
]


_INDICES_PER_PIECE: Final = 1 << 15


def support_to_json(support: Support) -> dict[str, Any]:
    """``{"indices": [...]}``, with ``octaves`` of an ordered one, ready for any JSON writer."""
    fields: dict[str, Any] = {"indices": support.indices.tolist()}
    if support.octaves is not None:
        fields["octaves"] = support.octaves.tolist()
    if support.gaps:
        fields["gaps"] = [list(pair) for pair in support.gaps.ranges]
    return fields


def support_json_pieces(support: Support) -> Iterator[bytes]:
    """The JSON text of :func:`support_to_json`, piece by piece, in the memory of one of them.

    As Python integers all indices together would take ten times the memory of the support.
    """
    yield b'{"indices":['
    yield from _item_pieces(support.indices)
    if support.octaves is not None:
        yield b'],"octaves":['
        yield from _item_pieces(support.octaves)
    if support.gaps:
        yield b'],"gaps":' + dump_json([list(pair) for pair in support.gaps.ranges])[:-1]
    yield b"]}"


def _item_pieces(items: npt.NDArray[Any]) -> Iterator[bytes]:
    for begin in range(0, items.size, _INDICES_PER_PIECE):
        some = items[begin : begin + _INDICES_PER_PIECE].tolist()
        yield (b"," if begin else b"") + dump_json(some)[1:-1]


def support_from_json(obj: Any, num_parameters: int, *, max_k: int | None = None) -> Support:
    """A support from a parsed ``{"indices": [...]}``, an ordered one with ``"octaves": [...]``.

    One that does not cover all parameters has ``"gaps": [[begin, end], ...]``, half-open ranges.

    Args:
        obj: the result of a JSON parser; these fields and no other.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to accept; None for no limit.

    Raises:
        InvalidSupport: another shape, or indices and octaves that are not a support.
        PayloadTooLarge: more than ``max_k`` indices.
    """
    more = [name for name in ("octaves", "gaps") if isinstance(obj, dict) and name in obj]
    fields, ordered = _fields(obj, ("indices", *more), InvalidSupport), "octaves" in more
    indices = _integers(fields, "indices", InvalidSupport)
    check_k(len(indices), max_k)
    octaves = _integers(fields, "octaves", InvalidSupport) if ordered else None
    gaps = _ranges(fields["gaps"]) if "gaps" in fields else ()
    return Support.from_indices(indices, num_parameters, octaves=octaves, gaps=gaps)


def _ranges(value: Any) -> list[list[int]]:
    """The ranges of a field ``gaps``, as far as JSON can say that they are some."""
    if not isinstance(value, list) or len(value) > MAX_RANGES:
        raise InvalidSupport(f"gaps must be a list of at most {MAX_RANGES} ranges", field="gaps")
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or {type(at) for at in pair} != {int}:
            raise InvalidSupport(
                f"gaps must be pairs of integers, such as [0, 10], not {_describe(pair)}",
                field="gaps",
            )
    return value


def patch_to_json(patch: Patch) -> dict[str, Any]:
    """``{"added": [...], "removed": [...]}``, and the result's ``digest`` if it is known."""
    fields = {"added": patch.added.tolist(), "removed": patch.removed.tolist()}
    return fields if patch.digest is None else {**fields, "digest": patch.digest}


def patch_from_json(obj: Any, num_parameters: int) -> Patch:
    """A patch from the parsed object that :func:`patch_to_json` makes.

    Args:
        obj: the result of a JSON parser; ``added``, ``removed`` and optionally ``digest``.
        num_parameters: M, 1 to 2^63 - 1.

    Raises:
        InvalidSupport: another shape, or indices unsorted, repeated or out of range.
    """
    has_digest = isinstance(obj, dict) and "digest" in obj
    names = ("added", "removed", "digest") if has_digest else ("added", "removed")
    fields = _fields(obj, names, InvalidSupport)
    digest = fields.get("digest")
    if digest is not None and not isinstance(digest, str):
        raise InvalidSupport(f"digest must be a string, not {_describe(digest)}", field="digest")
    return Patch.of(
        _integers(fields, "added", InvalidSupport),
        _integers(fields, "removed", InvalidSupport),
        num_parameters,
        digest=digest,
    )


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """``{"scheme", "num_perm", "seed", "support_size", "values"}``, ready for any JSON writer."""
    return {
        "scheme": signature.scheme,
        "num_perm": signature.num_perm,
        "seed": signature.seed,
        "support_size": signature.support_size,
        "values": signature.values.tolist(),
    }


def signature_from_json(obj: Any, num_parameters: int) -> Signature:
    """A signature from the parsed object that :func:`signature_to_json` makes.

    Args:
        obj: the result of a JSON parser; all five fields and no other.
        num_parameters: M, 1 to 2^63 - 1, which the object does not carry.

    Raises:
        InvalidSignature: another shape, ``num_perm`` not the number of values, or values that
            are not a signature.
    """
    names = ("scheme", "num_perm", "seed", "support_size", "values")
    fields = _fields(obj, names, InvalidSignature)
    scheme = fields["scheme"]
    if not isinstance(scheme, str) or len(scheme) > 40:
        raise InvalidSignature(f"scheme must be a name, not {_describe(scheme)}", field="scheme")
    num_perm, seed, support_size = (
        _integer(fields, name, InvalidSignature) for name in ("num_perm", "seed", "support_size")
    )
    values = _integers(fields, "values", InvalidSignature)
    if num_perm != len(values):
        raise InvalidSignature(
            f"num_perm is {_describe(num_perm)}, but there are {len(values)} values",
            field="num_perm",
        )
    return Signature.from_values(
        values,
        num_parameters=num_parameters,
        support_size=support_size,
        scheme=scheme,
        seed=seed,
    )


def dump_json(obj: Any) -> bytes:
    """Compact JSON, ASCII only."""
    return json.dumps(obj, separators=(",", ":"), allow_nan=False).encode("ascii")


def parse_json(data: Payload, error: type[InvalidInput], *, max_names: int | None = None) -> Any:
    """Parse a UTF-8 JSON text (RFC 8259) in linear time, or raise ``error``.

    Stricter than ``json.loads``: no NaN, no infinities, no repeated name in an object, no encoding
    but UTF-8, and bounds on arrays and objects (``json_structure``).

    Args:
        data: the text.
        error: the class of what is raised.
        max_names: the most names of one object; None for no limit.
    """
    try:
        check_structure(data)
        text = str(data, "utf-8")
        hook = _distinct(len(data) if max_names is None else max_names)
        return json.loads(text, object_pairs_hook=hook, parse_constant=_refuse_constant)
    except RecursionError:
        raise error("the JSON is nested too deeply") from None
    except UnicodeDecodeError as problem:
        raise error(f"the JSON is not UTF-8: {problem.reason} at byte {problem.start}") from None
    except ValueError as problem:  # JSONDecodeError, the checks, integers of thousands of digits
        raise error(f"this is not valid JSON: {problem}") from None


def _distinct(most: int) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a function that makes an object of its pairs, and takes no name twice."""

    def fields_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > most:
            raise ValueError(f"an object has {len(pairs)} names: {most} are allowed")
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise ValueError(
                f"the name {_describe(_repeated_name(pairs))} stands twice in one object"
            )
        return fields

    return fields_of


def _repeated_name(pairs: list[tuple[str, Any]]) -> str:
    """Find the first name that is repeated."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            break
        seen.add(name)
    return name


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _fields(obj: Any, names: tuple[str, ...], error: type[InvalidInput]) -> dict[str, Any]:
    """The object itself, once it has exactly the fields ``names``."""
    if not isinstance(obj, dict):
        raise error(f"expected a JSON object with {', '.join(names)}, not {_describe(obj)}")
    for name in names:
        if name not in obj:
            raise error(f"the field {name!r} is missing", field=name)
    for name in obj:
        if name not in names:
            raise error(f"the field {_describe(name)} is unknown, expected {', '.join(names)}")
    return obj


def _integer(fields: dict[str, Any], name: str, error: type[InvalidInput]) -> int:
    value = fields[name]
    if not _is_integer(value):
        raise error(
            f"{name} must be an integer of at most 64 bits, not {_describe(value)}", field=name
        )
    integer: int = value
    return integer


def _integers(fields: dict[str, Any], name: str, error: type[InvalidInput]) -> list[int]:
    values = fields[name]
    if not isinstance(values, list):
        raise error(f"{name} must be an array of integers, not {_describe(values)}", field=name)
    if not _all_integers(values):
        position, value = next((p, v) for p, v in enumerate(values) if not _is_integer(v))
        raise error(
            f"{name}[{position}] must be an integer of at most 64 bits, not {_describe(value)}",
            field=name,
        )
    return values


def _all_integers(values: list[Any]) -> bool:
    """Whether :func:`_is_integer` holds for each value, without a call for each."""
    if not values:
        return True
    return set(map(type, values)) == {int} and min(values) >= -(2**63) and max(values) < 2**64


def _is_integer(value: Any) -> bool:
    """Whether a value is an int of at most 64 bits; a bool, an int to ``isinstance``, is not."""
    return type(value) is int and -(2**63) <= value < 2**64


def _describe(value: Any) -> str:
    """A value for an error message: a container by its kind, any other quoted."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return quote(value)
