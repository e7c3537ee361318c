"""Calls that store and read supports, signatures and sketches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from modelkin import wire
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.models import read_model
from modelkin.client._transport.messages import Response
from modelkin.core.codecs.support import declared_bytes, declared_k, max_payload_size
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, PayloadTooLarge
from modelkin.types.models import ModelInfo

__all__ = [
    "SupportBound",
    "get_signature",
    "get_sketch",
    "get_support",
    "patch_support",
    "put_signature",
    "put_sketch",
    "put_support",
]


@dataclass(frozen=True, slots=True)
class SupportBound:
    """The largest support that an answer may be.

    Attributes:
        num_parameters: M of the space, if this client knows it.
        max_bytes: the most bytes of an answer, and of the indices that it decodes to.
    """

    num_parameters: int | None
    max_bytes: int

    @property
    def most_bytes(self) -> int:
        """The most bytes of the answer."""
        if self.num_parameters is None:
            return self.max_bytes
        return min(self.max_bytes, max_payload_size(self.num_parameters))

    def require(self, content: bytes) -> None:
        """Refuse a support before it is decoded: consecutive indices compress to nearly nothing.

        Raises:
            PayloadTooLarge: its header declares more indices than it may have.
        """
        if declared_bytes(content) > self.max_bytes:
            raise PayloadTooLarge(
                f"the support has {declared_k(content):,} indices, which take more than the "
                f"{self.max_bytes:,} bytes that they may: give the client a larger "
                f"max_answer_bytes"
            )


def put_support(
    space: str, model: str, support: Support, tags: Iterable[str] | None, condition: Condition
) -> Call[ModelInfo]:
    """Stores a whole support."""
    if not isinstance(support, Support):
        raise requests.wrong_type("support", "a modelkin.Support", support)
    return Call(requests.put(space, "supports", model, support, tags, condition), read_model)


def patch_support(
    space: str,
    model: str,
    patch: bytes,
    support: Support,
    tags: Iterable[str] | None,
    etag: str,
    *,
    idempotent: bool,
) -> Call[ModelInfo]:
    """Changes the support of a model that has this entity tag.

    Args:
        space: the model's space.
        model: the model's name.
        patch: the changes, in the native format.
        support: the support after the changes, for the answer.
        tags: the tags that replace the model's; None keeps them.
        etag: the entity tag of the version that the patch starts from.
        idempotent: whether the caller handles a second attempt that finds the first one's effect.
    """
    path = requests.model_path(space, "supports", model)
    params = (*requests.new_tags(tags), *requests.origin_fields(support).items())
    request = requests.write("PATCH", path, patch, wire.PATCH, params, etag)
    return Call(replace(request, idempotent=idempotent), read_model)


def get_support(
    space: str, model: str, revision: int | None, bound: SupportBound
) -> Call[tuple[Support, str | None]]:
    """Reads a support, and the entity tag of the model's version with that support."""
    if revision is not None and (type(revision) is not int or revision < 1):
        raise InvalidParameter(f"revision must be 1 or more, not {revision!r}", field="revision")
    params = () if revision is None else (("revision", str(revision)),)
    path = requests.model_path(space, "supports", model)
    request = requests.get(path, params, accept=wire.SUPPORT)
    return Call(replace(request, most=bound.most_bytes), partial(_read_support, bound))


def put_signature(
    space: str, model: str, signature: Signature, tags: Iterable[str] | None, condition: Condition
) -> Call[ModelInfo]:
    """Stores a signature alone."""
    if not isinstance(signature, Signature):
        raise requests.wrong_type("signature", "a modelkin.Signature", signature)
    return Call(requests.put(space, "signatures", model, signature, tags, condition), read_model)


def get_signature(space: str, model: str) -> Call[Signature]:
    """Reads a signature."""
    request = requests.get(requests.model_path(space, "signatures", model), accept=wire.SIGNATURE)
    return Call(request, lambda r: wire.decode_signature(content_of(r, wire.SIGNATURE)))


def put_sketch(
    space: str,
    model: str,
    sketch: Sketch,
    if_match: str | None,
    blinding: str | None = None,
) -> Call[ModelInfo]:
    """Stores a sketch beside a signature; ``blinding`` is the check value of a blinded one."""
    if not isinstance(sketch, Sketch):
        raise requests.wrong_type("sketch", "a modelkin.Sketch", sketch)
    path = requests.model_path(space, "sketches", model)
    content = wire.encode_sketch(sketch)
    stated = () if blinding is None else (("blinding", blinding),)
    request = requests.write("PUT", path, content, wire.SKETCH, stated, if_match)
    return Call(request, read_model)


def get_sketch(space: str, model: str) -> Call[Sketch]:
    """Reads a sketch."""
    request = requests.get(requests.model_path(space, "sketches", model), accept=wire.SKETCH)
    return Call(request, lambda r: wire.decode_sketch(content_of(r, wire.SKETCH)))


def _read_support(bound: SupportBound, response: Response) -> tuple[Support, str | None]:
    content = content_of(response, wire.SUPPORT)
    bound.require(content)
    return wire.decode_support(content), requests.etag_of(response)
