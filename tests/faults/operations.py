"""A model of the service in a few dictionaries, and random operations on both.

The model knows what each operation answers and leaves. Whatever differs is a failure that names
the seed and the number of the operation, with those before it.
"""

from __future__ import annotations

import base64
import json
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx

from modelkin import Support, wire
from tests.support.http_space import SIGNATURE, SUPPORT, true_similarity

__all__ = ["Operations"]

M: Final = 2_000
_NAMES: Final = tuple(f"org{number % 3}/m{number}" for number in range(12))
_TAGS: Final = ("red", "green", "blue")
_KEPT: Final = 4
"""Revisions before the present one that are kept for certain."""
_MAX_SPACES: Final = 3
_TRIES: Final = 3
"""Of a search that a machine under load does not complete in time."""


@dataclass(frozen=True)
class Known:
    """A model that should be there."""

    support: Support | None
    digest: str | None
    signature: bytes
    version: int
    etag: str
    tags: tuple[str, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()
    base_model: str | None = None
    digests: tuple[str | None, ...] = ()
    """Of its revisions, the first one first; None for a signature."""


@dataclass
class KnownSpace:
    """A space that should be there."""

    name: str
    version: int = 0
    models: dict[str, Known] = field(default_factory=dict)


class Mismatch(AssertionError):
    """The service and the model differ."""


class Operations:
    """Operations drawn from a seed, one after the other.

    Args:
        http: of the service.
        prefix: of the names of the spaces, which no other client uses.
        seed: of all that is drawn.
    """

    def __init__(self, http: httpx.Client, prefix: str, seed: int) -> None:
        self._http = http
        self._prefix = prefix
        self._seed = seed
        self._draw = random.Random(seed)
        self._spaces: dict[str, KnownSpace] = {}
        self._made = 0
        self._past: deque[str] = deque(maxlen=12)
        self.done: Counter[str] = Counter()
        self.searches = 0
        self.incomplete_searches = 0
        """Those of them whose answer could not be compared as a whole."""

    def run(self, count: int) -> None:
        """Carry out so many."""
        actions = [action for action, weight in self._actions().items() for _ in range(weight)]
        for number in range(count):
            action = actions[0] if not self._spaces else self._draw.choice(actions)
            try:
                action()
            except Exception as error:
                past = "\n".join(self._past)
                raise Mismatch(f"seed {self._seed}, operation {number}: {error}\n{past}") from error
            self.done[action.__name__.strip("_")] += 1

    def _actions(self) -> dict[Callable[[], None], int]:
        return {
            self._create_space: 1,
            self._delete_space: 1,
            self._put: 30,
            self._put_again: 5,
            self._put_batch: 4,
            self._patch: 10,
            self._put_signature: 6,
            self._update: 14,
            self._delete: 9,
            self._read: 10,
            self._read_revision: 6,
            self._list: 6,
            self._show: 4,
            self._search: 10,
            self._overlap: 4,
        }

    # --- what changes -------------------------------------------------------------------------

    def _create_space(self) -> None:
        if len(self._spaces) == _MAX_SPACES:
            return
        self._made += 1
        space = KnownSpace(f"{self._prefix}-{self._made}")
        body = {"name": space.name, "num_parameters": M}
        self._ask("POST", "/v1/spaces", 201, json=body)
        self._spaces[space.name] = space

    def _delete_space(self) -> None:
        if self._draw.random() < 0.8:
            return
        space = self._space()
        self._ask("DELETE", f"/v1/spaces/{space.name}", 204)
        del self._spaces[space.name]
        self._ask("GET", f"/v1/spaces/{space.name}", 404)

    def _put(self) -> None:
        space, name = self._space(), self._name()
        self._store(space, name, self._support(space), tags=self._new_tags())

    def _put_again(self) -> None:
        """What is there already, perhaps with other tags."""
        space = self._space()
        name, known = self._some(space)
        if known is not None and known.support is not None:
            self._store(space, name, known.support, tags=self._new_tags())

    def _store(
        self, space: KnownSpace, name: str, support: Support, tags: tuple[str, ...] | None
    ) -> None:
        headers, refused = self._condition(space.models.get(name))
        request = {
            "content": support.to_bytes(),
            "headers": {"Content-Type": SUPPORT, **headers},
            "params": {"tag": list(tags)} if tags else {},
        }
        path = f"/v1/spaces/{space.name}/supports/{name}"
        if refused:
            self._ask("PUT", path, 412, **request)
            return
        answer = self._ask("PUT", path, 200 if name in space.models else 201, **request)
        self._note_put(space, name, support, support.signature().to_bytes(), tags)
        self._compare(space, name, answer)

    def _put_batch(self) -> None:
        space = self._space()
        drawn = {name: self._support(space) for name in self._draw.sample(_NAMES, 3)}
        lines = [
            json.dumps({"model": name, "support": base64.b64encode(support.to_bytes()).decode()})
            for name, support in drawn.items()
        ]
        answer = self._ask(
            "POST",
            f"/v1/spaces/{space.name}/batch",
            200,
            content="\n".join(lines).encode(),
            headers={"Content-Type": "application/jsonl"},
        )
        ends = [json.loads(line) for line in answer.text.splitlines()]
        _same([end["model"] for end in ends], list(drawn), "the lines of a batch")
        for end, (name, support) in zip(ends, drawn.items(), strict=True):
            before = space.models.get(name)
            same = before is not None and before.digest == support.digest
            expected = "created" if before is None else "unchanged" if same else "replaced"
            _same(end["status"], expected, f"the line of {name}")
        # The models of a batch are changed in the order: replaced ones first, then new ones.
        for name in sorted(drawn, key=lambda name: name not in space.models):
            support = drawn[name]
            self._note_put(space, name, support, support.signature().to_bytes(), None)
        for name in drawn:
            self._compare(space, name)

    def _patch(self) -> None:
        space = self._space()
        name, known = self._some(space)
        if known is None or known.support is None:
            return
        after = self._related(known.support)
        self._ask(
            "PATCH",
            f"/v1/spaces/{space.name}/supports/{name}",
            200,
            content=wire.encode_patch(known.support, after),
            headers={"Content-Type": wire.PATCH, "If-Match": known.etag},
        )
        self._note_put(space, name, after, after.signature().to_bytes(), None)
        self._compare(space, name)

    def _put_signature(self) -> None:
        space, name = self._space(), self._name()
        known = space.models.get(name)
        signature = self._support(space).signature().to_bytes()
        request = {"content": signature, "headers": {"Content-Type": SIGNATURE}}
        path = f"/v1/spaces/{space.name}/signatures/{name}"
        if known is not None and known.support is not None:
            self._ask("PUT", path, 409, **request)
        else:
            self._ask("PUT", path, 201 if known is None else 200, **request)
            self._note_put(space, name, None, signature, None)
        if name in space.models:
            self._compare(space, name)

    def _update(self) -> None:
        space, name = self._space(), self._name()
        known = space.models.get(name)
        headers, refused = self._condition(known)
        tags = tuple(sorted(self._draw.sample(_TAGS, self._draw.randrange(3))))
        attributes = (("n", self._draw.randrange(3)),)
        base = self._draw.choice((None, *_NAMES[:2]))
        body = {"tags": tags, "attributes": dict(attributes), "base_model": base}
        path = f"/v1/spaces/{space.name}/models/{name}"
        if known is None or refused:
            self._ask("PATCH", path, 404 if known is None else 412, json=body, headers=headers)
            return
        self._ask("PATCH", path, 200, json=body, headers=headers)
        after = replace(known, tags=tags, attributes=attributes, base_model=base)
        if after != known:
            space.version += 1
            after = replace(after, version=space.version)
        space.models[name] = after
        self._compare(space, name)

    def _delete(self) -> None:
        space, name = self._space(), self._name()
        known = space.models.get(name)
        headers, refused = self._condition(known)
        path = f"/v1/spaces/{space.name}/models/{name}"
        if known is None or refused:
            self._ask("DELETE", path, 404 if known is None else 412, headers=headers)
            return
        self._ask("DELETE", path, 204, headers=headers)
        space.version += 1
        del space.models[name]
        self._ask("GET", path, 404)

    # --- what reads ---------------------------------------------------------------------------

    def _read(self) -> None:
        space, name = self._space(), self._name()
        known = space.models.get(name)
        path = f"/v1/spaces/{space.name}/supports/{name}"
        if known is None or known.support is None:
            self._ask("GET", path, 404 if known is None else 409)
            return
        got = Support.from_bytes(self._ask("GET", path, 200).content)
        _same(got, known.support, "the support")
        signature = self._ask("GET", path.replace("/supports/", "/signatures/"), 200)
        _same(signature.content, known.signature, "the signature")

    def _read_revision(self) -> None:
        space = self._space()
        name, known = self._some(space)
        if known is None:
            return
        listed = self._ask("GET", f"/v1/spaces/{space.name}/revisions/{name}", 200).json()["items"]
        count = len(known.digests)
        _same([item["revision"] for item in listed], list(range(count, 0, -1)), "the revisions")
        _same([item["digest"] for item in listed], list(known.digests[::-1]), "their digests")
        chosen = self._draw.choice(listed)
        if chosen["digest"] is None:
            return
        must = count - chosen["revision"] <= _KEPT
        if must and not chosen["kept"]:
            raise Mismatch(f"revision {chosen['revision']} of {count} is not kept")
        if chosen["kept"]:
            path = f"/v1/spaces/{space.name}/supports/{name}?revision={chosen['revision']}"
            got = Support.from_bytes(self._ask("GET", path, 200).content)
            _same(got.digest, chosen["digest"], "the support of a revision")

    def _list(self) -> None:
        space, tag = self._space(), self._draw.choice((None, *_TAGS))
        found: list[str] = []
        params: dict[str, Any] = {"limit": 5} | ({} if tag is None else {"tag": tag})
        while True:
            page = self._ask("GET", f"/v1/spaces/{space.name}/models", 200, params=params).json()
            found += [item["model"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
        expected = [
            name for name, known in space.models.items() if tag is None or tag in known.tags
        ]
        _same(found, sorted(expected), f"the models with tag {tag}")

    def _show(self) -> None:
        space = self._space()
        shown = self._ask("GET", f"/v1/spaces/{space.name}", 200).json()
        full = sum(known.support is not None for known in space.models.values())
        expected = len(space.models), full, len(space.models) - full, space.version
        counted = tuple(shown[name] for name in ("models", "supports", "signatures", "version"))
        _same(counted, expected, "what the space counts")

    def _search(self) -> None:
        space = self._space()
        name, known = self._some(space)
        if known is None or known.support is None:
            return
        method = self._draw.choice(("exact", "scan", "lsh"))
        params = {"model": name, "method": method, "k": 100}
        answer, complete = self._neighbors(space, params)
        truth = {
            other: true_similarity(known.support, each.support)
            for other, each in space.models.items()
            if each.support is not None and other != name
        }
        found = {
            item["model"]: item["similarity"]
            for item in answer["items"]
            if item["estimate"] == "exact"
        }
        ghosts = {item["model"] for item in answer["items"]} - space.models.keys()
        _same(ghosts, set(), "neighbours that are not there")
        twins = {other for other, similarity in truth.items() if similarity == 1.0}
        if not complete:
            _same(found, {other: truth.get(other) for other in found}, "similarities")
        elif method == "lsh":
            _same(found, {other: truth.get(other) for other in found}, "similarities")
            _same(twins - found.keys(), set(), "twins that no bucket found")
        else:
            _same(found, truth, f"similarities by {method}")

    def _neighbors(self, space: KnownSpace, params: dict[str, Any]) -> tuple[Any, bool]:
        """The answer to a search, and whether it is complete."""
        self.searches += 1
        for _ in range(_TRIES):
            path = f"/v1/spaces/{space.name}/neighbors"
            answer = self._ask("GET", path, 200, params=params).json()
            if not (answer["truncated"] or answer["degraded"]):
                return answer, True
        self.incomplete_searches += 1
        return answer, False

    def _overlap(self) -> None:
        space = self._space()
        full = {n: each.support for n, each in space.models.items() if each.support is not None}
        if not full:
            return
        a, b = (self._draw.choice(sorted(full)) for _ in range(2))
        answer = self._ask("GET", f"/v1/spaces/{space.name}/overlap", 200, params={"a": a, "b": b})
        _same(answer.json()["similarity"], true_similarity(full[a], full[b]), "the overlap")

    # --- the model ----------------------------------------------------------------------------

    def _note_put(
        self,
        space: KnownSpace,
        name: str,
        support: Support | None,
        signature: bytes,
        tags: tuple[str, ...] | None,
    ) -> None:
        """Store it in the model: a revision where the content is new, a version for any change."""
        known = space.models.get(name)
        digest = None if support is None else support.digest
        if known is None:
            after = Known(support, digest, signature, 0, "", digests=(digest,))
        elif (known.digest, known.signature) == (digest, signature):
            after = known
        else:
            after = replace(
                known,
                support=support,
                digest=digest,
                signature=signature,
                digests=(*known.digests, digest),
            )
        if tags:
            after = replace(after, tags=tuple(sorted(tags)))
        if after != known:
            space.version += 1
            after = replace(after, version=space.version)
        space.models[name] = after

    def _compare(self, space: KnownSpace, name: str, answer: httpx.Response | None = None) -> None:
        """The model as it is shown, by this answer to a change or by another one."""
        if answer is None:
            answer = self._ask("GET", f"/v1/spaces/{space.name}/models/{name}", 200)
        shown, known = answer.json(), space.models[name]
        space.models[name] = known = replace(known, etag=answer.headers["ETag"])
        expected = {
            "digest": known.digest,
            "revision": len(known.digests),
            "version": known.version,
            "tags": list(known.tags),
            "attributes": dict(known.attributes),
            "base_model": known.base_model,
        }
        _same({key: shown[key] for key in expected}, expected, f"model {name}")

    # --- what is drawn ------------------------------------------------------------------------

    def _space(self) -> KnownSpace:
        return self._spaces[self._draw.choice(sorted(self._spaces))]

    def _name(self) -> str:
        return self._draw.choice(_NAMES)

    def _some(self, space: KnownSpace) -> tuple[str, Known | None]:
        """A model that is there, if there is any."""
        if not space.models:
            return "", None
        name = self._draw.choice(sorted(space.models))
        return name, space.models[name]

    def _support(self, space: KnownSpace) -> Support:
        """A new one, kin of one that is there, or its twin."""
        _, known = self._some(space)
        if known is not None and known.support is not None and self._draw.random() < 0.6:
            return known.support if self._draw.random() < 0.3 else self._related(known.support)
        indices = self._draw.sample(range(M), self._draw.randint(1, 60))
        return Support.from_indices(sorted(indices), M)

    def _related(self, support: Support) -> Support:
        indices = set(support.indices.tolist())
        indices ^= set(self._draw.sample(range(M), self._draw.randint(1, 10)))
        return Support.from_indices(sorted(indices or {0}), M)

    def _new_tags(self) -> tuple[str, ...] | None:
        chosen = self._draw.sample(_TAGS, self._draw.randrange(3))
        return tuple(sorted(chosen)) or None

    def _condition(self, known: Known | None) -> tuple[dict[str, str], bool]:
        """Headers of a condition, and whether it does not hold."""
        chance = self._draw.random()
        if chance < 0.8:
            return {}, False
        if chance < 0.85:
            return {"If-Match": "*"}, known is None
        if chance < 0.93 or known is None:
            return {"If-Match": '"1.1.1"'}, True
        return {"If-Match": known.etag}, False

    def _ask(self, method: str, path: str, status: int, **request: Any) -> httpx.Response:
        """The answer, which must be of this status."""
        answer = self._http.request(method, path, **request)
        self._past.append(f"{method} {path} {request.get('params', '')}: {answer.status_code}")
        if answer.status_code != status:
            raise Mismatch(f"{method} {path}: {answer.status_code}, not {status}: {answer.text}")
        return answer


def _same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Mismatch(f"{what}: {found!r}, and should be {expected!r}")
