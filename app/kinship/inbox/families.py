"""``FamilyList``: the largest families of a tenant.

A family is a root with all that is made from it, through any number of steps. Lines say so, where
the root has a fingerprint: a model is made from the base that it names, if the two have lines in
common, else from one with an earlier date of publication; these are the edges of its family tree.
Where the root has none, the family is what the models of its space declare, without what is
contradicted or goes in a circle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from app.infra.db.database import Reader
from app.kinship.inbox.records import Family
from app.kinship.inbox.repositories import families
from app.kinship.repository import names_stored
from app.near_names import mistyped
from app.tenancy.auth.records import Tenant

__all__ = ["FamilyList"]

_MOST_BASES: Final = 2_000
"""The bases that are added up, those with most models: of more, families are larger than said."""
_MOST_UNTRUE: Final = 10_000
"""The contradicted declarations that are left out: of more, some count as if they were true."""
_LOOKED_UP: Final = 50
"""Roots of declared families whose fingerprints are looked up at a time, the largest first."""
_BRANCHES: Final = 3
"""The models of a root that are named."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Tree(Generic[Key]):
    """A root, how many models are made from it, and from each base below it that is made from it.

    Attributes:
        directly: how many models are made from the root itself.
    """

    root: Key
    models: int
    directly: int
    branches: tuple[tuple[Key, int], ...]


class FamilyList:
    """The families of a tenant, by their size."""

    def largest(self, session: Reader, tenant: Tenant, *, limit: int) -> list[Family]:
        """The largest families, the largest first."""
        found = self._measured(session, tenant, limit) + self._declared(session, tenant, limit)
        return sorted(found, key=lambda each: (-each.members, each.root))[:limit]

    def _measured(self, session: Reader, tenant: Tenant, limit: int) -> list[Family]:
        found = families.measured_bases(session, tenant.id, limit=_MOST_BASES)
        bases = {each.id: each for each in found}
        sizes = {id_: each.models for id_, each in bases.items()}
        trees = _trees(sizes, {id_: each.base_id for id_, each in bases.items()})
        made = list[Family]()
        for tree in trees[:limit]:
            shown = [(bases[id_].name, models) for id_, models in tree.branches[:_BRANCHES]]
            known = [id_ for id_, _ in tree.branches]
            more = families.made_from(session, tenant.id, tree.root, known, limit=_BRANCHES)
            name = bases[tree.root].name
            made.append(_family(name, None, tree.models, tree, shown, more, len(bases)))
        return made

    def _declared(self, session: Reader, tenant: Tenant, limit: int) -> list[Family]:
        """Those of spaces of weights; of spaces of differences where a root has no other.

        Only of roots without a fingerprint: what its lines say is known of any other.
        """
        found = families.declared_bases(session, tenant.id, limit=_MOST_BASES)
        of_differences = {each.space for each in found if each.of_differences}
        untrue = families.contradicted(session, tenant.id, limit=_MOST_UNTRUE)
        less = Counter((space, base) for space, _, base in untrue)
        sizes = {
            (each.space, each.name): true
            for each in found
            if (true := each.models - less[each.space, each.name]) > 0
        }
        above = {
            (each.space, each.name): None
            if each.base is None or (each.space, each.name, each.base) in untrue
            else (each.space, each.base)
            for each in found
        }
        by_root = defaultdict[str, list[_Tree[tuple[str, str]]]](list)
        for tree in _trees(sizes, above):
            by_root[tree.root[1]].append(tree)
        made = list[Family]()
        for root, trees in by_root.items():
            kept = [each for each in trees if each.root[0] not in of_differences] or trees
            tree, models = kept[0], sum(each.models for each in kept)
            shown = [(name, count) for (_, name), count in tree.branches[:_BRANCHES]]
            made.append(_family(root, tree.root[0], models, tree, shown, [], len(found)))
        made.sort(key=lambda each: -each.members)
        declared = list[Family]()
        for at in range(0, len(made), _LOOKED_UP):
            some = made[at : at + _LOOKED_UP]
            measured = families.with_fingerprint(session, tenant.id, [each.root for each in some])
            declared += [each for each in some if each.root not in measured]
            if len(declared) >= limit:
                break
        declared = declared[:limit]
        stored = names_stored(session, tenant.id, [each.root for each in declared])
        named = [self._with_names(session, tenant, each, untrue) for each in declared]
        return [
            each if each.root in stored else self._not_stored(session, tenant, each)
            for each in named
        ]

    def _not_stored(self, session: Reader, tenant: Tenant, family: Family) -> Family:
        """The family of a name that no model has, which may be mistyped."""
        assert family.space is not None
        near = families.names_near(session, tenant.id, family.space, family.root)
        return replace(
            family,
            members=family.members - 1,
            is_stored=False,
            meant=mistyped(family.root, near),
        )

    def _with_names(
        self,
        session: Reader,
        tenant: Tenant,
        family: Family,
        untrue: Collection[tuple[str, str, str]],
    ) -> Family:
        """The family with names of models from which no other is made, if there is room."""
        assert family.space is not None
        room = _BRANCHES - len(family.branches)
        if room <= 0:
            return family
        here = (family.space, family.root)
        others = [model for space, model, base in untrue if (space, base) == here]
        known = [*(name for name, _ in family.branches), *others]
        names = families.naming(session, tenant.id, family.space, family.root, known, limit=room)
        branches = (*family.branches, *((name, 0) for name in names))
        return replace(family, branches=branches, more=family.more - len(names))


def _family(
    root: str,
    space: str | None,
    models: int,
    tree: _Tree[Any],
    shown: Sequence[tuple[str, int]],
    names: Sequence[str],
    bases: int,
) -> Family:
    branches = (*shown, *((name, 0) for name in names))[:_BRANCHES]
    return Family(
        root=root,
        space=space,
        members=models + 1,
        branches=branches,
        more=tree.directly - len(branches),
        is_more=bases == _MOST_BASES,
    )


def _trees(sizes: Mapping[Key, int], above: Mapping[Key, Key | None]) -> list[_Tree[Key]]:
    """The trees of bases, the largest first.

    Args:
        sizes: how many models are made from each base directly.
        above: what each of them is made from; None, or a base that is not among them, for a root.
    """
    sizes, above = _without_loops(sizes, above)
    models, below = defaultdict[Key, int](int), defaultdict[Key, list[Key]](list)
    for base in sizes:
        line = _line(base, above, sizes)
        for each in line:
            models[each] += sizes[base]
        if len(line) > 1:
            below[line[1]].append(base)
    roots = [base for base in sizes if len(_line(base, above, sizes)) == 1]
    trees = [
        _Tree(
            root,
            models[root],
            sizes[root],
            tuple(sorted(((each, models[each]) for each in below[root]), key=lambda e: -e[1])),
        )
        for root in roots
    ]
    return sorted((each for each in trees if each.models), key=lambda tree: -tree.models)


def _without_loops(
    sizes: Mapping[Key, int], above: Mapping[Key, Key | None]
) -> tuple[dict[Key, int], dict[Key, Key | None]]:
    """The same, where the least of a loop is its root, and not made from the last of it."""
    cut_sizes, cut_above = dict(sizes), dict(above)
    done = set[Key]()
    for base in sizes:
        line, at = dict[Key, None](), base
        while at in cut_sizes and at not in done and at not in line:
            line[at] = None
            following = cut_above[at]
            if following is None:
                break
            at = following
        if at in line and cut_above[at] is not None:
            path = list(line)
            root = min(path[path.index(at) :], key=str)
            last = cut_above[root]
            assert last is not None
            cut_sizes[last] -= 1
            cut_above[root] = None
        done |= line.keys()
    return cut_sizes, cut_above


def _line(base: Key, above: Mapping[Key, Key | None], sizes: Mapping[Key, int]) -> list[Key]:
    """A base and all that it is made from, up to the root."""
    line = [base]
    while (following := above[line[-1]]) in sizes and following is not None:
        line.append(following)
    return line
