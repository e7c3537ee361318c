"""Calls about lines in common: anatomies, relatives, and pairs of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from modelkin._validation import check_model_name, quote_model
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._transport.messages import Request, Response
from modelkin.core.fingerprints.anatomy import Anatomy, Parent
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.sources import TensorAnatomy, TensorSource
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.errors import InvalidName
from modelkin.types.anatomies.anatomy import KnownModel, ModelAnatomy, TensorPairs
from modelkin.types.anatomies.relatives import Relative, Relatives
from modelkin.types.vocabulary import EdgeReason, LineVerdict, StatedBy
from modelkin.wire import FINGERPRINT, JSON, encode_fingerprint

__all__ = ["Subject", "anatomy", "relatives", "tensor_pairs"]

Subject: TypeAlias = str | Fingerprint
"""The name of a stored model, or a fingerprint that is not stored."""
A = TypeVar("A", bound=Anatomy)

_FINGERPRINTS: Final = "/v1/fingerprints"


def anatomy(subject: Subject, exclude: Iterable[str]) -> Call[ModelAnatomy]:
    """Finds the models that the tensors of a checkpoint come from."""
    return Call(_about(subject, "anatomy", _excluded(exclude)), _read_anatomy)


def relatives(subject: Subject, k: int, exclude: Iterable[str]) -> Call[Relatives]:
    """Lists the models with lines in common with one."""
    params = [("k", str(k)), *_excluded(exclude)]
    return Call(_about(subject, "relatives", params), _read_relatives)


def tensor_pairs(model: str, other: str) -> Call[TensorPairs]:
    """Compares two stored models tensor by tensor."""
    params = [("with", check_model_name(other, field="other"))]
    return Call(_about(model, "tensors", params), _read_pairs)


def _about(subject: Subject, what: str, params: list[tuple[str, str]]) -> Request:
    """A GET about a stored model, or a POST of a fingerprint that is not stored."""
    if isinstance(subject, str):
        return requests.get(f"{_FINGERPRINTS}/{quote_model(subject)}/{what}", params)
    if not isinstance(subject, Fingerprint):
        raise requests.wrong_type("subject", "a model's name or a Fingerprint", subject)
    headers = {"Accept": JSON, "Content-Type": FINGERPRINT}
    content = encode_fingerprint(subject)
    return Request("POST", f"/v1/{what}", tuple(params), headers, content, idempotent=True)


def _excluded(names: Iterable[str]) -> list[tuple[str, str]]:
    if isinstance(names, str):
        raise InvalidName("exclude is one string; give a list of model names", field="exclude")
    return [
        ("exclude", check_model_name(name, field=f"exclude[{at}]")) for at, name in enumerate(names)
    ]


# --- answers ----------------------------------------------------------------------------------


class _Source(msgspec.Struct):
    names: tuple[str, ...]
    shape: tuple[int, ...]
    model: str
    share: float
    keys: int
    expected: float
    log10_p: float
    kappa: float | None

    def value(self) -> TensorSource:
        return TensorSource(
            self.model,
            LinesOfTensor(self.names, self.shape, {}),
            self.share,
            self.keys,
            self.expected,
            self.log10_p,
            self.kappa,
        )


class _Tensor(msgspec.Struct):
    names: tuple[str, ...]
    shape: tuple[int, ...]
    not_comparable: NotComparable | None
    keys: int
    shares: dict[str, float]
    sources: tuple[_Source, ...]

    def value(self) -> TensorAnatomy:
        tensor = LinesOfTensor(self.names, self.shape, {}, self.not_comparable)
        sources = tuple(each.value() for each in self.sources)
        return TensorAnatomy(tensor, self.keys, sources, self.shares)


class _Relation(msgspec.Struct):
    relation: str  # a newer service may know more
    models: tuple[str, ...]
    sentence: str

    def value(self) -> Relation:
        return Relation(cast(Any, self.relation), self.models, self.sentence)


class _Parent(msgspec.Struct):
    model: str
    revision: int
    stated_by: StatedBy
    base_models: tuple[str, ...]
    license: str | None
    published_at: datetime | None
    edge: EdgeReason | None
    verdict: LineVerdict
    share_of_lines: float
    share_of_model: float
    share_of_parameters: float
    added: float
    keys: int
    expected: float
    log10_p: float
    log10_e: float
    tensors: tuple[str, ...]

    def value(self) -> Parent:
        return Parent(**{name: getattr(self, name) for name in Parent.__dataclass_fields__})

    def known(self) -> KnownModel:
        return KnownModel(**{name: getattr(self, name) for name in KnownModel.__dataclass_fields__})


class _Anatomy(msgspec.Struct):
    model: str | None
    scale: int
    parents: tuple[_Parent, ...]
    relations: tuple[_Relation, ...]
    tensors: tuple[_Tensor, ...]
    compared: int
    common: int
    truncated: bool
    degraded: bool = False


class _Relative(msgspec.Struct):
    model: str
    revision: int
    stated_by: StatedBy
    base_models: tuple[str, ...]
    license: str | None
    published_at: datetime | None
    edge: EdgeReason | None
    verdict: LineVerdict | None
    share_of_lines: float
    share_of_model: float
    share_of_parameters: float | None
    keys: int
    expected: float
    log10_p: float
    log10_e: float
    relations: tuple[_Relation, ...]

    def value(self) -> Relative:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return Relative(**{**fields, "relations": tuple(r.value() for r in self.relations)})


class _Relatives(msgspec.Struct):
    model: str | None
    items: tuple[_Relative, ...]
    note: str | None
    compared: int
    common: int
    truncated: bool
    degraded: bool = False


class _Pairs(msgspec.Struct):
    model: str
    other: str
    scale: int
    parents: tuple[_Parent, ...]
    relations: tuple[_Relation, ...]
    share_of_lines: float
    share_of_other: float
    keys: int
    expected: float
    log10_p: float
    items: tuple[_Tensor, ...]


def _read_anatomy(response: Response) -> ModelAnatomy:
    found = decode(response, _Anatomy)
    return ModelAnatomy(
        tensors=tuple(each.value() for each in found.tensors),
        parents=tuple(each.value() for each in found.parents),
        scale=found.scale,
        relations=tuple(each.value() for each in found.relations),
        model=found.model,
        models={each.model: each.known() for each in found.parents},
        compared=found.compared,
        common=found.common,
        truncated=found.truncated,
        degraded=found.degraded,
    )


def _read_relatives(response: Response) -> Relatives:
    found = decode(response, _Relatives)
    return Relatives(
        items=tuple(each.value() for each in found.items),
        model=found.model,
        note=found.note,
        compared=found.compared,
        common=found.common,
        truncated=found.truncated,
        degraded=found.degraded,
    )


def _read_pairs(response: Response) -> TensorPairs:
    found = decode(response, _Pairs)
    return TensorPairs(
        tensors=tuple(each.value() for each in found.items),
        parents=tuple(each.value() for each in found.parents),
        scale=found.scale,
        relations=tuple(each.value() for each in found.relations),
        model=found.model,
        other=found.other,
        share_of_lines=found.share_of_lines,
        share_of_other=found.share_of_other,
        keys=found.keys,
        expected=found.expected,
        log10_p=found.log10_p,
    )
