"""From the JSON of answers to the types of ``modelkin.types.spaces``, strictly.

A field that is missing or of another type is an :class:`UnknownFormError` that names it; one that
nobody here knows is ignored, for a newer service may send more. It never does I/O and never raises
what the public sees: ``_protocol`` adds which request it was.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn, TypeGuard, TypeVar

from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import Banding
from modelkin.errors import InvalidParameter
from modelkin.types.models import BulkResult, ModelInfo
from modelkin.types.paging import Page
from modelkin.types.search import Neighbor, Neighbors, Overlap
from modelkin.types.spaces import (
    FREE,
    SignatureSpec,
    SpaceInfo,
    StopList,
    SupportSize,
    SupportSizePolicy,
    TensorOverlap,
)

__all__ = [
    "Fields",
    "UnknownFormError",
    "read_bulk_result",
    "read_model",
    "read_neighbors",
    "read_overlap",
    "read_page",
    "read_space",
    "read_support_size",
]

T = TypeVar("T")


class UnknownFormError(Exception):
    """An answer lacks something this SDK needs; the message says what."""


class Fields:
    """A JSON object whose fields are read by name and type; it knows its place for messages."""

    __slots__ = ("_at", "_values")

    def __init__(self, value: Any, at: str = "") -> None:
        if not isinstance(value, dict):
            raise UnknownFormError(f"{at or 'the body'} is not an object")
        self._values: dict[str, Any] = value
        self._at = f"{at}." if at else ""

    def text(self, name: str) -> str:
        value = self._values.get(name)
        return value if isinstance(value, str) else self._fail(name, "a string")

    def integer(self, name: str) -> int:
        value = self._values.get(name)
        return value if _is_integer(value) else self._fail(name, "an integer")

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if not _is_integer(value) and not isinstance(value, float):
            self._fail(name, "a number")
        try:
            return float(value)
        except OverflowError:  # JSON allows integers of any length
            self._fail(name, "a number")

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        return value if isinstance(value, bool) else self._fail(name, "true or false")

    def moment(self, name: str) -> datetime:
        try:
            return datetime.fromisoformat(self.text(name))
        except ValueError:
            self._fail(name, "a date and time of RFC 3339")

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._values.get(name)
        return value if isinstance(value, dict) else self._fail(name, "an object")

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        if not all(isinstance(value, str) for value in values):
            self._fail(name, "a list of strings")
        return tuple(values)

    def integers(self, name: str) -> tuple[int, ...]:
        values = self._list(name)
        return tuple(values) if all(map(_is_integer, values)) else self._fail(name, "integers")

    def inner(self, name: str) -> Fields:
        return Fields(self._values.get(name), f"{self._at}{name}")

    def rows(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        """A list of objects, each as ``read`` makes it."""
        values = self._list(name)
        return tuple(
            read(Fields(value, f"{self._at}{name}[{position}]"))
            for position, value in enumerate(values)
        )

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """``read(name)``, or None where the field is null or absent."""
        return None if self._values.get(name) is None else read(name)

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        return value if isinstance(value, list) else self._fail(name, "a list")

    def _fail(self, name: str, wanted: str) -> NoReturn:
        found = "is not" if name in self._values else "is missing, it should be"
        raise UnknownFormError(f"{self._at}{name} {found} {wanted}")


def read_space(body: Fields) -> SpaceInfo:
    return SpaceInfo(
        name=body.text("name"),
        num_parameters=body.integer("num_parameters"),
        layout=body.optional("layout", lambda name: Layout.of(body.rows(name, _read_tensor_spec))),
        signature=_read_signature_spec(body.inner("signature")),
        models=body.integer("models"),
        supports=body.integer("supports"),
        signatures=body.integer("signatures"),
        version=body.integer("version"),
        created_at=body.moment("created_at"),
        banding=body.optional("banding", lambda name: _read_banding(body.inner(name))),
        support_size=body.optional("support_size", lambda name: _read_policy(body.inner(name)))
        or FREE,
        stop_list=body.optional("stop_list", lambda name: _read_stop_list(body.inner(name))),
    )


def read_support_size(body: Fields) -> SupportSize:
    return SupportSize(
        body.text("policy"), body.optional("k", body.integer), body.integer("reports")
    )


def read_model(body: Fields, etag: str | None = None) -> ModelInfo:
    return ModelInfo(
        space=body.text("space"),
        model=body.text("model"),
        kind=body.text("kind"),
        support_size=body.integer("support_size"),
        digest=body.optional("digest", body.text),
        revision=body.integer("revision"),
        version=body.integer("version"),
        tags=body.texts("tags"),
        attributes=body.mapping("attributes"),
        source=body.optional("source", body.text),
        base_model=body.optional("base_model", body.text),
        verified=body.flag("verified"),
        created_at=body.moment("created_at"),
        updated_at=body.moment("updated_at"),
        etag=etag,
    )


def read_bulk_result(body: Fields, model: str) -> BulkResult:
    """A line of a batch's answer, which is about the line of ``model``."""
    status = body.text("status")
    if status not in {"created", "replaced", "unchanged", "failed"}:
        raise UnknownFormError(f"status is {status[:40]!r}")
    if status != "failed":
        return BulkResult(model, status)
    error = body.inner("error")
    return BulkResult(model, status, error.text("code"), error.text("detail"))


def read_page(body: Fields, read: Callable[[Fields], T]) -> Page[T]:
    return Page(body.rows("items", read), body.optional("next_cursor", body.text))


def read_neighbors(body: Fields) -> Neighbors:
    return Neighbors(
        items=body.rows("items", _read_neighbor),
        model=body.optional("model", body.text),
        method=body.text("method"),
        candidates=body.integer("candidates"),
        degraded=body.flag("degraded"),
        recall=body.optional("recall", body.number),
        truncated=body.optional("truncated", body.flag) or False,
    )


def read_overlap(body: Fields) -> Overlap:
    return Overlap(
        a=body.text("a"),
        b=body.text("b"),
        shared_indices=body.integer("shared_indices"),
        similarity=body.number("similarity"),
        jaccard=body.number("jaccard"),
        tensors=body.optional("tensors", lambda name: body.rows(name, _read_tensor_overlap)),
    )


def _read_tensor_spec(body: Fields) -> tuple[str, tuple[int, ...]]:
    return body.text("name"), body.integers("shape")


def _read_signature_spec(body: Fields) -> SignatureSpec:
    return SignatureSpec(body.text("scheme"), body.integer("num_perm"), body.integer("seed"))


def _read_banding(body: Fields) -> Banding:
    try:
        return Banding(body.integer("bands"), body.integer("rows"))
    except InvalidParameter as error:
        raise UnknownFormError(f"banding: {error}") from error


def _read_stop_list(body: Fields) -> StopList:
    return StopList(
        version=body.integer("version"),
        size=body.integer("size"),
        share=body.number("share"),
        models=body.integer("models"),
        computed_at=body.moment("computed_at"),
    )


def _read_policy(body: Fields) -> SupportSizePolicy:
    return SupportSizePolicy(body.text("policy"), body.optional("k", body.integer))


def _read_neighbor(body: Fields) -> Neighbor:
    return Neighbor(
        model=body.text("model"),
        similarity=body.number("similarity"),
        jaccard=body.number("jaccard"),
        estimate=body.text("estimate"),
        standard_error=body.number("standard_error"),
        shared_indices=body.optional("shared_indices", body.integer),
    )


def _read_tensor_overlap(body: Fields) -> TensorOverlap:
    return TensorOverlap(
        name=body.text("name"),
        size=body.integer("size"),
        a=body.integer("a"),
        b=body.integer("b"),
        shared_indices=body.integer("shared_indices"),
        similarity=body.optional("similarity", body.number),
    )


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
