"""Questions to a service whose store may lie, and what an honest answer to them is."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import select

from app.infra.db.tables.catalog import ModelRow, RevisionRow
from app.settings import Settings
from modelkin import Support
from tests.support.app.harness import AppHarness
from tests.support.http_space import SUPPORT, random_support, related

__all__ = ["Answers", "Stand", "require_honest"]

M, K = 200_000, 20_000

Answers = dict[str, Any]
"""Responses by their questions."""


@dataclass(slots=True)
class Stand:
    """A service with two spaces of the same M and K, and the keys of their supports.

    Attributes:
        keys: the keys of the supports of ``s`` by model; ``old`` is that of the first support of
            ``b``, and ``foreign`` that of a support of the other space.
    """

    app: AppHarness
    keys: dict[str, str] = field(default_factory=dict)
    base: Support = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(33)
        self.base = random_support(random, M, K)
        for name in ("s", "t"):
            self.app.create_space(name, M)
        self.app.put_support("s", "b", related(random, self.base, 0.1))
        for model, share in {"b": 0.8, "c": 0.4, "d": 0.6}.items():
            self.app.put_support("s", model, related(random, self.base, share))
        self.app.put_support("s", "a", self.base)
        self.app.put_support("t", "foreign", related(random, self.base, 0.3))
        self._put_sketched()
        with self.app.database.reading() as session:
            rows = session.execute(select(ModelRow.name, ModelRow.blob_key))
            self.keys = {name: key for name, key in rows if key is not None}
            old = select(RevisionRow.blob_key).where(RevisionRow.blob_key.is_not(None))
            [before] = {*session.scalars(old)} - {*self.keys.values()}
        self.keys["old"] = str(before)

    def _put_sketched(self) -> None:
        """Put the signature ``q`` with its sketch, which is compared by sketches alone."""
        made = self.base.signature()
        stated = {
            "scheme": made.scheme,
            "num_perm": made.num_perm,
            "seed": made.seed,
            "support_size": made.support_size,
            "values": made.values.tolist(),
        }
        put = self.app.http.put
        assert put("/v1/spaces/s/signatures/q", json=stated).is_success
        head = {"Content-Type": "application/vnd.modelkin.sketch"}
        sketch = self.base.sketch().to_bytes()
        assert put("/v1/spaces/s/sketches/q", content=sketch, headers=head).is_success

    def empty_machine(self) -> None:
        """Make the machine a new one, without copies of supports and without sketches."""
        settings = self.app.services[Settings]
        for folder in (settings.support_cache_dir, settings.sketch_dir):
            shutil.rmtree(folder, ignore_errors=True)

    def ask(self) -> Answers:
        """The answers to all that is computed from supports and sketches."""
        http, s = self.app.http, "/v1/spaces/s"
        head = {"Content-Type": SUPPORT}
        answers = {
            f"overlap {a} {b}": http.get(f"{s}/overlap", params={"a": a, "b": b})
            for a, b in ("ab", "ac", "bc", "bd")
        }
        answers |= {
            f"neighbors of {model}, {method}": http.get(
                f"{s}/neighbors", params={"model": model, "method": method}
            )
            for model, method in (("a", "exact"), ("b", "scan"), ("q", "exact"), ("q", "scan"))
        }
        answers |= {
            f"support {name}": http.get(f"{s}/supports/{name}", params=params)
            for name, params in (("a", {}), ("b", {}), ("b", {"revision": 1}), ("c", {}))
        }
        names = {"models": ["a", "b", "c", "d"]}
        return answers | {
            "neighbors of a payload": http.post(
                f"{s}/neighbors", content=self.base.to_bytes(), headers=head
            ),
            "matrix": http.post(f"{s}/similarity", json=names),
            "donors": http.get(f"{s}/donors", params={"target": "a", "method": "cover"}),
            "graph": http.get(f"{s}/graph"),
            "sketch of b": http.get(f"{s}/sketches/b"),
            "sketch of c": http.get(f"{s}/sketches/c"),
        }


def require_honest(right: Answers, answers: Answers) -> None:
    """Require that each answer is right, says that it is degraded, or is a 503.

    Raises:
        AssertionError: an answer is wrong; names the question.
    """
    for question, answer in answers.items():
        if answer.status_code == 503:
            continue
        expected = right[question]
        assert answer.status_code == expected.status_code == 200, (question, answer.text)
        if "json" not in answer.headers["Content-Type"]:
            assert expected.content == answer.content, question
            continue
        found, wanted = answer.json(), expected.json()
        if question == "graph" or found.get("degraded"):
            assert _exact(found) <= _exact(wanted), (question, found)
        else:
            assert wanted == found, question


def _exact(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    """What an answer says exactly: pairs with S of a graph, models with S of neighbours."""
    rows = answer.get("edges", answer.get("items", []))
    return {
        (row.get("source"), row.get("target"), row.get("model"), row["similarity"])
        for row in rows
        if row.get("estimate") == "exact"
    }
