"""The service's HTTP API, operation by operation: which request each is, how its answer is read.

Every function here returns a :class:`Call` and does no I/O; the synchronous and the asynchronous
client send the same calls. Names are checked before a URL is built from them. What crosses the
network as bytes is ``modelkin.wire``'s.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin import wire
from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin._version import __version__
from modelkin.client._protocol import decoding, requests, sizes
from modelkin.client._protocol.decoding import Fields, UnknownFormError
from modelkin.client._transport.errors import api_error, foreign_answer, parse_json
from modelkin.client._transport.messages import Request, Response, media_type
from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidInput,
    InvalidName,
    InvalidParameter,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
)
from modelkin.types.models import BulkResult, ModelInfo
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix
from modelkin.types.spaces import SignatureSpec, SpaceInfo

__all__ = ["Call", "answer"]

T = TypeVar("T")

_NPY = "application/x-npy"
_JSONL = "application/jsonl"
_PAGE_SIZE = (("limit", "100"),)

Query: TypeAlias = str | Support | Signature
"""What neighbours and donors are asked of: a stored model's name, or a support or signature."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and how the answer to it is read."""

    request: Request
    parse: Callable[[Response], T]


def answer(call: Call[T], response: Response, url: str) -> T:
    """The result of a call.

    Args:
        call: what was sent.
        response: what came back.
        url: the service's address, for messages.

    Raises:
        ApiError: the service refused, or something else answers at its address.
        ModelkinError: the answer is the service's, in a form this version does not know.
    """
    request = call.request
    if request.method == "DELETE" and response.repeated and response.status == 404:
        response = Response(204, {})  # the first try deleted it, and its answer was lost
    if not 200 <= response.status < 300:
        raise api_error(response)
    try:
        return call.parse(response)
    except (UnknownFormError, InvalidInput, PayloadTooLarge, SpaceMismatch) as error:
        raise ModelkinError(
            f"the service at {url} answers {request.method} {request.path} in a form that modelkin "
            f"{__version__} does not know: {error}; upgrade modelkin, or the service"
        ) from error


def next_page(call: Call[Page[T]], page: Page[T], url: str) -> Call[Page[T]] | None:
    """The call for the page behind the one that ``call`` gave, None behind the last.

    Raises:
        ModelkinError: the service gave the cursor that was sent, so there would be no end.
    """
    if page.next_cursor is None:
        return None
    here = ("cursor", page.next_cursor)
    if here in call.request.params:
        raise ModelkinError(f"the service at {url} answers the same page again")
    params = tuple(param for param in call.request.params if param[0] != "cursor")
    return replace(call, request=replace(call.request, params=(*params, here)))


def is_ready(response: Response) -> bool:
    """What an answer to :func:`ready` means: a gateway before a service that starts says 502."""
    if response.status in {502, 503, 504}:
        return False
    if not 200 <= response.status < 300:
        raise api_error(response)
    return True


# --- spaces -----------------------------------------------------------------------------------


def spaces() -> Call[Page[SpaceInfo]]:
    request = requests.get(requests.SPACES, _PAGE_SIZE)
    return Call(request, lambda r: decoding.read_page(_fields(r), decoding.read_space))


def space(name: str) -> Call[SpaceInfo]:
    return Call(requests.get(requests.space_path(name)), _read_space)


def ensure_space(
    name: str,
    layout: Layout | None,
    num_parameters: int | None,
    signature: SignatureSpec | None,
    banding: Banding | float | None,
    support_size: Any = None,
) -> Call[SpaceInfo]:
    body: dict[str, Any] = {"name": check_space_name(name)}
    if layout is None and num_parameters is None:
        raise InvalidParameter(
            "a space needs layout= or num_parameters=: they say what its indices mean"
        )
    if layout is not None:
        body |= {"num_parameters": layout.num_parameters, "layout": layout.to_json()}
        if num_parameters not in {None, layout.num_parameters}:
            raise InvalidParameter(
                f"num_parameters is {num_parameters}, the layout has {layout.num_parameters}; "
                f"leave num_parameters out",
                field="num_parameters",
            )
    else:
        body["num_parameters"] = num_parameters
    if signature is not None:
        body["signature"] = {
            "scheme": signature.scheme,
            "num_perm": signature.num_perm,
            "seed": signature.seed,
        }
    if banding is not None:
        body["banding"] = (
            {"bands": banding.bands, "rows": banding.rows}
            if isinstance(banding, Banding)
            else {"similarity": banding}
        )
    if support_size is not None:
        body["support_size"] = sizes.policy_json(support_size)
    # The same body twice answers 200 with the space that is there, hence idempotent though POST.
    return Call(requests.post(requests.SPACES, body), _read_space)


def delete_space(name: str) -> Call[None]:
    return Call(requests.write("DELETE", requests.space_path(name)), _read_nothing)


# --- supports and signatures ------------------------------------------------------------------


def put_support(
    space: str,
    model: str,
    support: Support,
    tags: Iterable[str] | None,
    if_match: str | None,
) -> Call[ModelInfo]:
    if not isinstance(support, Support):
        raise requests.wrong_type("support", "a modelkin.Support", support)
    return Call(requests.put(space, "supports", model, support, tags, if_match), _read_model)


def put_signature(
    space: str,
    model: str,
    signature: Signature,
    tags: Iterable[str] | None,
    if_match: str | None,
) -> Call[ModelInfo]:
    if not isinstance(signature, Signature):
        raise requests.wrong_type("signature", "a modelkin.Signature", signature)
    return Call(requests.put(space, "signatures", model, signature, tags, if_match), _read_model)


def get_signature(space: str, model: str) -> Call[Signature]:
    request = requests.get(requests.model_path(space, "signatures", model), accept=wire.SIGNATURE)
    return Call(request, lambda r: wire.decode_signature(_content(r, wire.SIGNATURE)))


def put_batch(space: str, lines: bytes, names: Sequence[str]) -> Call[tuple[BulkResult, ...]]:
    """Many models at once; ``lines`` are those of ``names``, as ``_bulk`` makes them."""
    headers = {"Accept": _JSONL, "Content-Type": _JSONL}
    path = f"{requests.space_path(space)}/batch"
    # Each line is stored as by a PUT, and so the same lines twice are the same lines once.
    request = Request("POST", path, (), headers, lines, idempotent=True)
    return Call(request, lambda r: _read_batch(r, names))


# --- models -----------------------------------------------------------------------------------


def models(space: str, tags: Iterable[str]) -> Call[Page[ModelInfo]]:
    params = (*_PAGE_SIZE, *requests.tag_params(tags))
    request = requests.get(f"{requests.space_path(space)}/models", params)
    return Call(request, lambda r: decoding.read_page(_fields(r), decoding.read_model))


def model(space: str, name: str) -> Call[ModelInfo]:
    return Call(requests.get(requests.model_path(space, "models", name)), _read_model)


def update_model(
    space: str,
    name: str,
    tags: Iterable[str] | None,
    attributes: Mapping[str, Any] | None,
    source: str | Unchanged | None,
    base_model: str | Unchanged | None,
    if_match: str | None,
) -> Call[ModelInfo]:
    changes: dict[str, Any] = {}
    if tags is not None:
        changes["tags"] = check_tags(tags)
    if attributes is not None:
        changes["attributes"] = dict(attributes)
    if source is not UNCHANGED:
        changes["source"] = source
    if base_model is not UNCHANGED:
        changes["base_model"] = base_model
    path = requests.model_path(space, "models", name)
    body = requests.json_bytes(changes)
    request = requests.write("PATCH", path, body, wire.JSON, if_match=if_match)
    return Call(request, _read_model)


def delete_model(space: str, name: str, if_match: str | None) -> Call[None]:
    request = requests.write(
        "DELETE", requests.model_path(space, "models", name), if_match=if_match
    )
    return Call(request, _read_nothing)


# --- questions --------------------------------------------------------------------------------


def neighbors(
    space: str,
    query: Query,
    k: int,
    min_similarity: float | None,
    method: str,
    tags: Iterable[str],
) -> Call[Neighbors]:
    params = [("k", str(k)), ("method", str(method)), *requests.tag_params(tags)]
    if min_similarity is not None:
        params.append(("min_similarity", str(min_similarity)))
    request = requests.ask(f"{requests.space_path(space)}/neighbors", "model", query, params)
    return Call(request, lambda r: decoding.read_neighbors(_fields(r)))


def overlap(space: str, a: str, b: str) -> Call[Overlap]:
    pair = (("a", check_model_name(a, field="a")), ("b", check_model_name(b, field="b")))
    request = requests.get(f"{requests.space_path(space)}/overlap", pair)
    return Call(request, lambda r: decoding.read_overlap(_fields(r)))


def similarity(space: str, models: Iterable[str]) -> Call[SimilarityMatrix]:
    if isinstance(models, str):
        raise InvalidName("models is one string; give a list of model names", field="models")
    names = tuple(
        check_model_name(name, field=f"models[{position}]") for position, name in enumerate(models)
    )
    path = f"{requests.space_path(space)}/similarity"
    request = requests.post(path, {"models": names}, accept=_NPY)
    return Call(request, lambda r: _read_matrix(r, names))


def ready() -> Request:
    """Whether the service can answer now; :func:`is_ready` reads the response."""
    return requests.get("/readyz")


# --- reading answers --------------------------------------------------------------------------


def _fields(response: Response) -> Fields:
    return Fields(parse_json(response))


def _read_space(response: Response) -> SpaceInfo:
    return decoding.read_space(_fields(response))


def _read_model(response: Response) -> ModelInfo:
    return decoding.read_model(_fields(response), response.headers.get("etag"))


def _read_nothing(response: Response) -> None:
    """A deletion answers nothing."""


def _content(response: Response, expected: str) -> bytes:
    if media_type(response) != expected:
        raise foreign_answer(response)
    return response.content


def _read_batch(response: Response, names: Sequence[str]) -> tuple[BulkResult, ...]:
    lines = _content(response, _JSONL).splitlines()
    if len(lines) != len(names):
        raise UnknownFormError(f"there are {len(lines)} results, not {len(names)}")
    return tuple(
        decoding.read_bulk_result(Fields(parse_json(replace(response, content=line))), name)
        for line, name in zip(lines, names, strict=True)
    )


def _read_matrix(response: Response, names: tuple[str, ...]) -> SimilarityMatrix:
    values = _read_npy(_content(response, _NPY), (len(names), len(names)))
    listed = response.headers.get("x-modelkin-estimated", "")
    try:
        estimated = tuple(names[int(row)] for row in listed.split(",") if row.strip())
    except (ValueError, IndexError):
        raise UnknownFormError(
            f"X-Modelkin-Estimated is {listed[:60]!r}, not row numbers"
        ) from None
    return SimilarityMatrix(names, values, estimated)


def _read_npy(content: bytes, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """A read-only matrix out of a .npy file, whose header is believed only where it fits.

    Source: numpy.lib.format, version 1.0. ``numpy.load`` would allocate what the header declares.
    """
    stream = io.BytesIO(content)
    try:
        np.lib.format.read_magic(stream)
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError as error:
        raise UnknownFormError(f"the matrix is no .npy file: {error}") from error
    body = content[stream.tell() :]
    if (found, fortran, dtype.str) != (shape, False, "<f8") or len(body) != 8 * shape[0] * shape[1]:
        raise UnknownFormError(f"the matrix is {found} of {dtype.str}, not {shape} of <f8")
    return np.frombuffer(body, dtype="<f8").reshape(shape)
