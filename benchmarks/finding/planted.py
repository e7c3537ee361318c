"""A service's store with as many fingerprints as its explorer is for, with what jobs found of them.

The families are those of :class:`MadeHub`: of Zipf sizes, the largest of a base with 10,000
children, 200 of which are copies of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from app.bootstrap import open_services
from app.fingerprints.records import Facts, FingerprintPut, PreparedFingerprint
from app.fingerprints.repositories import feeds
from app.fingerprints.repositories.fingerprints import insert_fingerprints
from app.infra.db.database import Database
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.base import table_of
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from benchmarks.finding.hub import MadeHub
from modelkin.core.codecs import fingerprint as codec
from modelkin.core.fingerprints.arrays import arrays_of
from modelkin.core.fingerprints.fingerprint import Fingerprint, LinesOfTensor

__all__ = ["PlantedHub"]

Keys = npt.NDArray[np.uint64]
T = TypeVar("T")

_LAYERS, _WIDTH, _SCALE = 12, 1024, 128
_KINDS: Final = ("q", "k", "v", "o")
_TENSORS: Final = tuple(
    LinesOfTensor((f"layers.{layer}.{kind}",), (_WIDTH, _WIDTH), {_WIDTH: 2 * _WIDTH})
    for layer in range(_LAYERS)
    for kind in _KINDS
)
_LINES: Final = 2 * _WIDTH * len(_TENSORS)
_KEYS: Final = _LINES // _SCALE
_COPIES: Final = 0.02
"""The part of a family of 100 or more that is a copy of its base."""
_SIBLINGS: Final = 8
"""The members of its family that a child was compared with, beside the base."""
_FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)
_AT_ONCE: Final = 1000


@dataclass(frozen=True, eq=False)
class PlantedHub:
    """Fingerprints of a tenant, their kin and their anatomies.

    Attributes:
        models: how many there are.
        largest: the members of the largest family, its base included.
    """

    models: int
    largest: int

    @cached_property
    def made(self) -> MadeHub:
        """Who is of which family."""
        return MadeHub(self.models, self.largest)

    @property
    def popular(self) -> str:
        """The base with most children."""
        return self.name(int(self.made.base[0]))

    def child(self, family: int = 0) -> str:
        """A child of a family that is no copy."""
        members = reversed(self.made.members(family).tolist())
        return self.name(next(each for each in members if not self._is_copy(each)))

    def stranger(self) -> str:
        """A model without kin."""
        return self.name(int(np.flatnonzero(self.made.family[1:] < 0)[0]) + 1)

    def name(self, model: int) -> str:
        """The name of a model, by its number."""
        return f"owner-{model % 300:03d}/model-{model:06d}"

    def fill(self, folder: Path) -> None:
        """Store all of them below a folder, as ``demo.service.running`` opens it."""
        url = f"sqlite:///{folder / 'modelkin.db'}"
        settings = Settings(_env_file=None, database_url=url, embedded_worker="off")
        with open_services(settings) as services:
            self.put(services[Database], services[Tenant])

    def put(self, database: Database, tenant: Tenant) -> None:
        """Store all of them as a tenant's, whose first fingerprints they are."""
        for some in _parts(range(1, self.models + 1), _AT_ONCE):
            puts = [self._put(model) for model in some]
            with database.writing() as session:
                feeds.lock_feed(session, tenant.id)
                size = sum(len(put.content.data) for put in puts)
                new = {"by": len(puts), "fingerprints": len(puts), "size": size}
                first = feeds.advance(session, tenant.id, **new) - len(puts) + 1
                insert_fingerprints(session, tenant.id, puts, version=first)
                rows = [self._anatomy(model, tenant.id) for model in some]
                session.connection().execute(table_of(AnatomyRow).insert(), rows)
        for kin in _parts(self._kin(tenant.id), 100 * _AT_ONCE):
            with database.writing() as session:
                session.connection().execute(table_of(KinRow).insert(), kin)

    # --- parts --------------------------------------------------------------------------------

    def _is_copy(self, model: int) -> bool:
        family = int(self.made.family[model])
        if family < 0 or self.made.root(model) == model or self.made.family_sizes[family] < 100:
            return False
        return model % round(1 / _COPIES) == 0

    def _kept(self, model: int) -> float:
        """The part of its base's lines that a model has."""
        root = self.made.root(model)
        if root == model or self._is_copy(model):
            return 1.0
        return float(0.06 + 0.9 * np.random.default_rng([1, model]).beta(2, 1.5))

    def _keys(self, model: int) -> Keys:
        draw, root = np.random.default_rng([0, model]), self.made.root(model)
        if root == model or self._is_copy(model):
            draw = np.random.default_rng([0, root])
            return np.unique(draw.integers(0, 2**64 // _SCALE, _KEYS, np.uint64))
        held = self._keys(root)
        held = held[draw.random(held.size) < self._kept(model)]
        added = draw.integers(0, 2**64 // _SCALE, _KEYS - held.size, np.uint64)
        return np.unique(np.concatenate([held, added]))

    def _put(self, model: int) -> FingerprintPut:
        keys, root = self._keys(model), self.made.root(model)
        owners = (keys % np.uint64(len(_TENSORS))).astype(np.uint32)  # a key is of one tensor
        arrays = self._empty._replace(keys=keys, owners=owners, longer=np.zeros(keys.size, "?"))
        content = PreparedFingerprint(
            data=codec.encode(arrays),
            scale=_SCALE,
            digest=codec.digest(arrays),
            tensors=len(_TENSORS),
            keys=keys.size,
            lines={_WIDTH: _LINES},
            parameters=_WIDTH**2 * len(_TENSORS),
            finding_scale=_SCALE,
            finding_keys=keys,
        )
        facts = Facts(
            base_models=(self.name(root),) if root != model and model % 2 else (),
            license=("apache-2.0", "mit", None)[model % 3],
            published_at=_FIRST + timedelta(hours=model if root != model else 0),
            file_bytes=2 * _WIDTH**2 * len(_TENSORS),
        )
        return FingerprintPut(self.name(model), content, "hub", facts)

    @cached_property
    def _empty(self) -> codec.FingerprintArrays:
        keys, owners = np.empty(0, np.uint64), np.empty(0, np.uint32)
        return arrays_of(Fingerprint(_SCALE, _TENSORS, {_WIDTH: _LINES}, keys, owners, owners))

    def _kin(self, tenant_id: int) -> Iterator[dict[str, Any]]:
        for family in range(len(self.made.family_sizes)):
            base, *children = self.made.members(family).tolist()
            pairs = [(base, child) for child in children]
            for at, child in enumerate(children):
                pairs += [(child, each) for each in children[max(0, at - _SIBLINGS) : at]]
            for one, other in pairs:
                yield self._kin_of(tenant_id, one, other)
                yield self._kin_of(tenant_id, other, one)

    def _kin_of(self, tenant_id: int, model: int, other: int) -> dict[str, Any]:
        share = self._shares[model] * self._shares[other]
        keys = round(share * _KEYS)
        return {
            "fingerprint_id": model,
            "other_id": other,
            "tenant_id": tenant_id,
            "verdict": "copy" if share == 1 else "derived",
            "relation": "copy" if share == 1 else "shares",
            "sentence": self._sentence(other, share),
            **dict.fromkeys(("share", "share_of_other", "share_of_parameters"), share),
            "keys": keys,
            "expected": 1e-9,
            "log10_p": -9.0 * keys,
            "made_at": _FIRST,
        }

    def _sentence(self, other: int, share: float) -> str:
        if share == 1:
            return f"all lines of {self.name(other)}, and no others"
        return f"shares weights with {self.name(other)}: {share:.1%} of lines are equal"

    @cached_property
    def _shares(self) -> Sequence[float]:
        return [self._kept(model) if model else 0.0 for model in range(self.models + 1)]

    def _anatomy(self, model: int, tenant_id: int) -> dict[str, Any]:
        root = self.made.root(model)
        share = 0.0 if root == model else self._shares[model]
        verdict = "copy" if share == 1 else "derived"
        said = {
            "relation": "copy" if share == 1 else "shares",
            "models": [self.name(root)],
            "sentence": self._sentence(root, share),
        }
        return {
            "fingerprint_id": model,
            "tenant_id": tenant_id,
            "is_changed": False,
            "version": model,
            "verdict": verdict if share else "unknown",
            "relations": [said] if share else [],
            "parents": [root] if share else [],
            "first_share": share,
            "covered": share,
            "compared": self.models,
            "made_at": _FIRST,
        }


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
