"""A hub planted in a database: fingerprints, their anatomies, and what they are to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np

from app.infra.db.database import Database
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.fingerprints import FingerprintPayloadRow, FingerprintRow
from app.tenancy.auth.records import Tenant
from benchmarks.finding.hub import MadeHub
from tests.support.models.made_fingerprints import made_fingerprint

__all__ = ["CHANGED_AT", "PlantedHub"]

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
"""When the first model was published."""
CHANGED_AT = datetime(2026, 11, 1, tzinfo=UTC)
"""After all but the new models were stored."""
_STORED_AT = CHANGED_AT - timedelta(days=30)
_KIN = 20
"""The members of its family that a newcomer is compared with, as anatomies do it."""
_DECLARED, _COPIES, _AVERAGES, _WRONG = 0.8, 0.01, 0.005, 0.01
"""The part of children that name their base, that are copies of it, and that are averages of it and
another one; and of models without kin those that name a base which is none."""
_LICENSES = ("apache-2.0", "mit", "llama-license", "cc-by-nc-4.0", None)
_ROWS = 20_000


@dataclass(eq=False)
class PlantedHub:
    """A hub of families of Zipf sizes, a tenth of its models in the largest.

    Attributes:
        models: how many fingerprints there are.
        new: how many of them have come since :data:`CHANGED_AT`.
        has_kin: whether to plant what they are to each other, too.
        pairs: how many pairs of kin were planted.
    """

    models: int
    new: int
    has_kin: bool = True
    pairs: int = field(default=0, init=False)

    def plant(self, database: Database, tenant: Tenant) -> None:
        """Write all rows."""
        made = MadeHub(self.models, max(3, self.models // 10))
        draw = np.random.default_rng(7)
        wanted = set[int]()
        rows = [self._fingerprint(made, draw, model) for model in range(1, self.models + 1)]
        anatomies = [self._anatomy(made, draw, model, wanted) for model in range(1, len(rows) + 1)]
        named = {each["name"]: each["id"] for each in rows}
        for each in rows:
            if made.family[each["id"]] < 0 and each["base_models"]:
                wanted |= {each["id"], named[each["base_models"][0]]}
        payloads = ({**_payload(model), "fingerprint_id": model} for model in sorted(wanted))
        for row, several in (
            (FingerprintRow, rows),
            (AnatomyRow, anatomies),
            (FingerprintPayloadRow, payloads),
            (KinRow, self._kin(made, draw) if self.has_kin else ()),
        ):
            left = iter(several)
            while some := [{**each, "tenant_id": tenant.id} for each in islice(left, _ROWS)]:
                with database.writing() as session:
                    session.execute(_table_of(row).insert(), some)

    def _fingerprint(self, made: MadeHub, draw: np.random.Generator, model: int) -> dict[str, Any]:
        base, is_new = made.root(model), model > self.models - self.new
        stored = CHANGED_AT + timedelta(hours=1) if is_new else _STORED_AT
        declared = [_name(base)] if base != model and draw.random() < _DECLARED else None
        if made.family[model] < 0 and draw.random() < _WRONG:
            declared = [_name(int(draw.choice(made.base)))]
        own = base if draw.random() < 0.7 else model
        return {
            "id": model,
            "name": _name(model),
            "revision": 1,
            "scheme": "lines-1",
            "scale": 2,
            "digest": f"sha256:{draw.bytes(32).hex()}",
            "stated_by": "hub",
            "tensors": 2,
            "keys": 512,
            "lines": {"1000": 2048},
            "parameters": 7_000_000_000,
            "size": 8_000,
            "base_models": declared,
            "license": _LICENSES[own % len(_LICENSES)],
            "published_at": BEGIN + timedelta(minutes=model),
            "file_bytes": 14_000_000_000,
            "version": model,
            "created_at": stored,
            "changed_at": stored,
        }

    def _anatomy(
        self, made: MadeHub, draw: np.random.Generator, model: int, wanted: set[int]
    ) -> dict[str, Any]:
        base, other = made.root(model), int(draw.choice(made.base))
        relation, models = "changed", [_name(base)]
        said = f"changed, as by fine-tuning or rounding: 58% of lines of {_name(base)} unchanged"
        verdict = "derived"
        if base == model:
            relation, models, verdict = "none", [], "unknown"
            said = f"none of {self.models - 1:,} stored models shares lines with it"
        elif base != other and draw.random() < _AVERAGES:
            relation, models, verdict = "average", [_name(base), _name(other)], "average"
            said = f"average of {models[0]} (70%) and {models[1]} (30%)"
            wanted |= {model, base, other}
        at = CHANGED_AT + timedelta(hours=2) if model > self.models - self.new else _STORED_AT
        return {
            "fingerprint_id": model,
            "is_changed": False,
            "version": model,
            "verdict": verdict,
            "relations": [{"relation": relation, "models": models, "sentence": said}],
            "parents": [] if base == model else [base],
            "base_id": None if base == model else base,
            "first_share": 0.6,
            "covered": 0.6,
            "compared": self.models - 1,
            "made_at": at,
        }

    def _kin(self, made: MadeHub, draw: np.random.Generator) -> Iterator[dict[str, Any]]:
        """Of each newcomer its base and some members that came before, in both directions."""
        for family in range(made.family_sizes.size):
            members = made.members(family)
            for place in range(1, members.size):
                earlier = members[1:place]
                some = draw.permutation(earlier)[: _KIN - 1] if place > _KIN else earlier
                for other in (int(members[0]), *some.tolist()):
                    self.pairs += 1
                    yield from _pair(int(members[place]), other, draw, other == members[0])


def _table_of(row: Any) -> Any:
    return row.__table__


def _pair(
    model: int, other: int, draw: np.random.Generator, is_base: bool
) -> Iterator[dict[str, Any]]:
    is_copy = is_base and draw.random() < _COPIES
    share = (
        1.0 if is_copy else float(draw.uniform(0.3, 0.95) if is_base else draw.uniform(0.1, 0.6))
    )
    for one, another in ((model, other), (other, model)):
        yield {
            "fingerprint_id": one,
            "other_id": another,
            "verdict": "copy" if is_copy else "derived",
            "relation": "copy" if is_copy else "changed",
            "sentence": f"shares weights with {_name(another)}: {share:.0%} of lines unchanged, as "
            f"by fine-tuning or rounding",
            "share": share,
            "share_of_other": share,
            "share_of_parameters": share,
            "keys": round(512 * share),
            "expected": 0.1,
            "log10_p": -1_000 * share,
            "made_at": _STORED_AT,
        }


def _payload(model: int) -> dict[str, Any]:
    made = made_fingerprint(model, 256)
    keys = np.unique(made.keys).astype("<u8").tobytes()
    return {"data": made.to_bytes(), "finding_scale": 2, "finding_keys": keys}


def _name(model: int) -> str:
    return f"owner-{model % 997}/model-{model}"
