"""Calls about models and their revisions: all data of models but their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modelkin._validation import (
    check_attributes,
    check_base_models,
    check_model_name,
    check_space_name,
    check_tags,
)
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, next_page, read_nothing
from modelkin.client._protocol.calls.decoding import decode, reader
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._transport.messages import Response
from modelkin.core.weights import Weights
from modelkin.errors import InvalidParameter
from modelkin.types.models import DuplicateWeights, ModelInfo, StatedWeights
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.types.revisions import Revision, Revisions
from modelkin.types.vocabulary import BaseRelation, ModelOrder
from modelkin.wire import JSON

__all__ = [
    "delete",
    "describe",
    "duplicates",
    "get",
    "get_weights",
    "list_all",
    "list_revisions",
    "put_weights",
    "read_model",
    "update",
]

_REVISIONS = (("limit", "1000"),)
"""The largest page that the service returns, since revisions are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RevisionPage(Page[Revision]):
    items: tuple[Revision, ...]
    first_revision: int


def list_all(
    space: str,
    tags: Iterable[str] = (),
    *,
    prefix: str = "",
    text: str = "",
    attributes: Mapping[str, Any] | None = None,
    base_model: str | None = None,
    order: ModelOrder = "name",
) -> Call[Page[ModelInfo]]:
    """Lists the models that meet every filter."""
    params = [*requests.PAGE_SIZE, *requests.tag_params(tags)]
    params += [(name, value) for name, value in (("prefix", prefix), ("text", text)) if value]
    params += [("attribute", _filter_value(*pair)) for pair in (attributes or {}).items()]
    if base_model is not None:
        params.append(("base_model", check_model_name(base_model, field="base_model")))
    if order != "name":
        params.append(("order", str(order)))
    request = requests.get(f"{requests.space_path(space)}/models", params)
    return Call(request, reader(Page[ModelInfo]))


def put_weights(
    space: str, name: str, weights: Weights, revision: int | None
) -> Call[StatedWeights]:
    """States the weights that a model's support was made from."""
    if not isinstance(weights, Weights):
        raise requests.wrong_type("weights", "the Weights of a checkpoint", weights)
    body = {
        "digest": weights.digest,
        "tensors": dict(weights.tensors),
        "files": weights.files,
        "size": weights.size,
        "dtypes": dict(weights.dtypes),
        **({} if revision is None else {"revision": revision}),
    }
    path = requests.model_path(space, "weights", name)
    request = requests.write("PUT", path, requests.json_bytes(body), JSON)
    return Call(request, reader(StatedWeights))


def get_weights(space: str, name: str) -> Call[StatedWeights]:
    """Reads the digests of a model's weights."""
    path = requests.model_path(space, "weights", name)
    return Call(requests.get(path), reader(StatedWeights))


def duplicates(space: str | None, name: str | None) -> Call[Page[DuplicateWeights]]:
    """Lists the weights that several models have."""
    params = list(requests.PAGE_SIZE)
    if space is not None:
        params.append(("space", check_space_name(space)))
    if name is not None:
        params.append(("model", check_model_name(name)))
    request = requests.get("/v1/duplicates", params)
    return Call(request, reader(Page[DuplicateWeights]))


def _filter_value(key: str, value: Any) -> str:
    """The value of an attribute as a filter; None matches any value."""
    if not isinstance(key, str) or not key or "=" in key:
        raise InvalidParameter(
            f"an attribute to filter by is a name without '=', not {key!r}", field="attributes"
        )
    if value is None:
        return key
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, str | int | float):
        return f"{key}={value}"
    raise InvalidParameter(
        f"models are filtered by texts, numbers, True and False, not by {type(value).__name__}: "
        "None asks for any value",
        field="attributes",
    )


def get(space: str, name: str) -> Call[ModelInfo]:
    """Reads a model."""
    return Call(requests.get(requests.model_path(space, "models", name)), read_model)


def update(
    space: str,
    name: str,
    tags: Iterable[str] | None,
    attributes: Mapping[str, Any] | None,
    source: str | Unchanged | None,
    base_model: str | Unchanged | None,
    if_match: str | None,
    merge_attributes: Mapping[str, Any] | None = None,
    base_models: Iterable[str] | Unchanged | None = UNCHANGED,
    base_relation: BaseRelation | Unchanged | None = UNCHANGED,
) -> Call[ModelInfo]:
    """Changes the fields that are given."""
    changes: dict[str, Any] = {}
    if tags is not None:
        changes["tags"] = check_tags(tags)
    if attributes is not None:
        changes["attributes"] = check_attributes(attributes)
    if merge_attributes is not None:
        changes["merge_attributes"] = check_attributes(merge_attributes, field="merge_attributes")
    if not isinstance(source, Unchanged):
        changes["source"] = source
    if not isinstance(base_model, Unchanged):
        changes["base_model"] = base_model
    if not isinstance(base_models, Unchanged):
        changes["base_models"] = check_base_models(base_models or ())
    if not isinstance(base_relation, Unchanged):
        changes["base_relation"] = base_relation
    path = requests.model_path(space, "models", name)
    body = requests.json_bytes(changes)
    return Call(requests.write("PATCH", path, body, JSON, if_match=if_match), read_model)


def describe(
    space: str,
    stored: ModelInfo,
    attributes: Mapping[str, Any] | None,
    source: str | None,
    base_model: str | None,
) -> Call[ModelInfo] | None:
    """Gives a model that was just stored its metadata; None if nothing has to change.

    Sending the same metadata twice changes nothing, so the call may be retried.
    """
    given = {"attributes": attributes, "source": source, "base_model": base_model}
    requests.json_bytes(given)  # refuses what has no JSON form, as what arrays compare to
    if all(value is None or value == getattr(stored, name) for name, value in given.items()):
        return None
    new_source = UNCHANGED if source is None else source
    new_base = UNCHANGED if base_model is None else base_model
    call = update(space, stored.model, None, attributes, new_source, new_base, None)
    return replace(call, request=replace(call.request, idempotent=True))


def delete(space: str, name: str, if_match: str | None) -> Call[None]:
    """Deletes a model with its support, signature and sketch."""
    path = requests.model_path(space, "models", name)
    return Call(requests.write("DELETE", path, if_match=if_match), read_nothing)


def read_model(response: Response) -> ModelInfo:
    """The model that a response describes, with its entity tag."""
    return replace(decode(response, ModelInfo), etag=requests.etag_of(response))


def list_revisions(space: str, model: str, url: str) -> Flow[Revisions]:
    """Reads all revisions that the service knows of a model, page by page."""
    path = requests.model_path(space, "revisions", model)
    call: Call[Page[Revision]] = Call(requests.get(path, _REVISIONS), reader(_RevisionPage))
    items: list[Revision] = []
    while True:
        page: _RevisionPage = yield call
        items.extend(page.items)
        following = next_page(call, page, url)
        if following is None:
            return Revisions(tuple(items), check_model_name(model), page.first_revision)
        call = following
