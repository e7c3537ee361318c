"""Calls about spaces: their creation, their properties, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from modelkin._validation import check_space_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._protocol.uploads.support_size import policy_json
from modelkin.client._transport.messages import Response
from modelkin.core.blinding import Blinding
from modelkin.core.importance import UNSTATED, Importance, ImportanceKind
from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.sketching.banding import Banding
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page
from modelkin.types.spaces import (
    FREE,
    SignatureSpec,
    SpaceInfo,
    StopList,
    SubspaceSpec,
    SupportSizePolicy,
)
from modelkin.types.vocabulary import SignatureScheme, SpaceKind, SupportSizePolicyName

__all__ = ["delete", "ensure", "get", "list_all", "stated_importance", "subspace_fields"]


def list_all() -> Call[Page[SpaceInfo]]:
    """Lists all spaces."""
    return Call(requests.get(requests.SPACES, requests.PAGE_SIZE), _read_page)


def get(name: str) -> Call[SpaceInfo]:
    """Reads a space."""
    return Call(requests.get(requests.space_path(name)), _read)


def ensure(
    name: str,
    layout: Layout | None,
    num_parameters: int | None,
    signature: SignatureSpec | None,
    banding: Banding | float | None,
    support_size: Any = None,
    importance: Importance | ImportanceKind | None = None,
    exclude: Iterable[str] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
    blinding: Blinding | None = None,
    ordered: bool = False,
) -> Call[SpaceInfo]:
    """Creates a space, unless the same one exists."""
    patterns = _patterns(exclude, layout)
    parameters = (
        _parameters(layout, num_parameters, patterns)
        if blinding is None
        else _blinding_fields(blinding, layout, num_parameters)
    )
    body: dict[str, Any] = {"name": check_space_name(name), **parameters, **more}
    if signature is not None:
        body["signature"] = {
            "scheme": signature.scheme,
            "num_perm": signature.num_perm,
            "seed": signature.seed,
        }
    if isinstance(banding, Banding):
        body["banding"] = {"bands": banding.bands, "rows": banding.rows}
    elif banding is not None:
        body["banding"] = {"similarity": banding}
    if support_size is not None:
        body["support_size"] = policy_json(support_size)
    stated = stated_importance(importance)
    if stated is not None:
        body["importance"] = {"kind": stated.kind, "base": stated.base, "note": stated.note}
    if patterns:
        body["exclude"] = list(patterns)
    if ordered:
        body["ordered"] = True
    # The same body again gets a 200 with the existing space: idempotent, though a POST.
    return Call(requests.post(requests.SPACES, body), _read)


def subspace_fields(
    kind: SpaceKind, subspaces: SubspaceSpec | None, features: str | None
) -> dict[str, Any]:
    """The fields of a space of data subspaces; empty for a space of supports.

    Raises:
        InvalidParameter: the arguments contradict each other.
    """
    if kind == "supports":
        for name, given in (("subspaces", subspaces), ("features", features)):
            if given is not None:
                raise InvalidParameter(f'{name} goes with kind="subspaces"', field=name)
        return {}
    spec = {} if subspaces is None else asdict(subspaces)
    if features is not None:
        spec["features"] = features
    return {"kind": kind, "subspaces": spec} if spec else {"kind": kind}


def delete(name: str) -> Call[None]:
    """Deletes a space and its models."""
    return Call(requests.write("DELETE", requests.space_path(name)), read_nothing)


def stated_importance(importance: Any) -> Importance | None:
    """Check the importance to state, and return it; None if nothing is stated.

    Raises:
        InvalidParameter: the kind is unknown, or the value is of another type.
    """
    if importance is None:
        return None
    if isinstance(importance, str):
        return Importance.of(importance)
    if isinstance(importance, Importance):
        if not importance.is_stated:
            return None
        return Importance.of(importance.kind, importance.base, importance.note)
    raise requests.wrong_type("importance", "a kind or a modelkin.Importance", importance)


def _patterns(exclude: Any, layout: Layout | None) -> tuple[str, ...]:
    """Check the patterns, and return them."""
    if isinstance(exclude, str):
        raise InvalidParameter(
            "exclude is one string; give a list of patterns of tensor names", field="exclude"
        )
    patterns = tuple(exclude)
    if patterns and layout is None:
        raise InvalidParameter(
            "exclude names tensors, so the space needs layout= with them", field="exclude"
        )
    return patterns


def _parameters(
    layout: Layout | None, num_parameters: int | None, exclude: tuple[str, ...]
) -> dict[str, Any]:
    if layout is None and num_parameters is None:
        raise InvalidParameter(
            "a space needs layout= or num_parameters=: they say what its indices mean"
        )
    if layout is None:
        return {"num_parameters": num_parameters}
    if not isinstance(layout, Layout):
        wanted = "a modelkin.Layout, such as modelkin.Layout.of([(name, shape), ...])"
        raise requests.wrong_type("layout", wanted, layout)
    m = (layout.without(exclude) if exclude else layout).num_parameters
    if num_parameters not in {None, m}:
        raise InvalidParameter(
            f"num_parameters is {num_parameters}, the layout has {m}; leave num_parameters out",
            field="num_parameters",
        )
    return {"num_parameters": m, "layout": layout.to_json()}


def _blinding_fields(
    blinding: Blinding, layout: Layout | None, num_parameters: int | None
) -> dict[str, Any]:
    """The fields of a blinded space: the layout stays with its clients."""
    if not isinstance(blinding, Blinding):
        raise requests.wrong_type("blinding", "a modelkin.Blinding(key, layout)", blinding)
    if layout is not None or num_parameters not in {None, blinding.num_parameters}:
        raise InvalidParameter(
            "the blinding says how many parameters there are, and the service is not to know the "
            "layout: leave layout and num_parameters out",
            field="layout" if layout is not None else "num_parameters",
        )
    return {"num_parameters": blinding.num_parameters, "blinding": blinding.check}


class _Signature(msgspec.Struct):
    scheme: SignatureScheme
    num_perm: int
    seed: int


class _Policy(msgspec.Struct):
    policy: SupportSizePolicyName
    k: int | None = None


class _Space(msgspec.Struct):
    """A space on the wire, with its layout as a list, and no defaults in its signature spec."""

    name: str
    num_parameters: int
    signature: _Signature | None
    models: int
    supports: int
    signatures: int
    version: int
    created_at: datetime
    layout: tuple[TensorSpec, ...] | None = None
    banding: Banding | None = None
    support_size: _Policy | None = None
    stop_list: StopList | None = None
    importance: Importance = UNSTATED
    exclude: tuple[str, ...] = ()
    layout_digest: str | None = None
    kind: SpaceKind = "supports"
    subspaces: SubspaceSpec | None = None
    blinding: str | None = None
    ordered: bool = False

    def info(self) -> SpaceInfo:
        """The space in the client's form."""
        layout, spec, policy = self.layout, self.signature, self.support_size
        return SpaceInfo(
            name=self.name,
            num_parameters=self.num_parameters,
            layout=None if layout is None else Layout.of((t.name, t.shape) for t in layout),
            signature=SignatureSpec()
            if spec is None
            else SignatureSpec(spec.scheme, spec.num_perm, spec.seed),
            models=self.models,
            supports=self.supports,
            signatures=self.signatures,
            version=self.version,
            created_at=self.created_at,
            banding=self.banding,
            support_size=FREE if policy is None else SupportSizePolicy(policy.policy, policy.k),
            stop_list=self.stop_list,
            importance=self.importance,
            exclude=self.exclude,
            layout_digest=self.layout_digest,
            kind=self.kind,
            subspaces=self.subspaces,
            blinding=self.blinding,
            ordered=self.ordered,
        )


def _read(response: Response) -> SpaceInfo:
    return decode(response, _Space).info()


def _read_page(response: Response) -> Page[SpaceInfo]:
    page = decode(response, Page[_Space])
    return Page(tuple(space.info() for space in page.items), page.next_cursor)
