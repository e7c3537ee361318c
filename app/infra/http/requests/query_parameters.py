"""Query parameters: an operation refuses parameters that it does not declare.

A misspelt parameter would be ignored otherwise, and so would all but the last value of a parameter
that takes one value. The answer would be one to another question. Operations of routers that are
``AUTHENTICATED`` refuse them. Pages say which they ignore, since a link from elsewhere may bring
its own. Webhooks and health checks take any: hubs, probes and proxies append to an address.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, get_args, get_origin
from weakref import WeakKeyDictionary

from fastapi import Request, params
from fastapi.exceptions import RequestValidationError

from app.near_names import did_you_mean

__all__ = ["ignored_parameters", "refuse_unknown"]

_MAX_NAMED: Final = 20
"""Unknown parameters that an answer names."""
_MAX_SHOWN: Final = 60
"""Characters of a name that are shown."""
_READ_OTHERWISE: Final = (params.Param, params.Body, params.Depends)
"""The marks of parameters; one without any is of the query, as one marked as such."""
_FOUND: Final[WeakKeyDictionary[Callable[..., Any], tuple[list[str], frozenset[str]]]] = (
    WeakKeyDictionary()
)
"""The parameters of operations that were asked before: they never change."""


def refuse_unknown(request: Request) -> None:
    """Refuse query parameters that the operation does not declare, and repeated ones.

    Raises:
        RequestValidationError: names each; answered with a 422.
    """
    if not request.scope["query_string"]:
        return
    known, several = _parameters(request.scope["endpoint"])
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError([_entry(name, known) for name in unknown[:_MAX_NAMED]])
    given = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name, count in given.items() if count > 1 and name not in several]
    if repeated:
        raise RequestValidationError([_repetition_error(name) for name in repeated])


def ignored_parameters(request: Request) -> list[str]:
    """Say in a sentence each which query parameters the page of a request ignores, a few at most.

    It is a page that goes on without them; of one that no function answers, nothing is known. What
    its script alone reads is declared by a dependency of the route.
    """
    endpoint = request.scope.get("endpoint")
    if not request.scope["query_string"] or not inspect.isfunction(endpoint):
        return []
    own, several = _parameters(endpoint)
    of_script = (
        name
        for each in getattr(request.scope.get("route"), "dependencies", ())
        for name, _ in _declared_parameters(each.dependency, marked=True)
    )
    known = sorted({*own, *of_script})
    takes = f"This page takes {', '.join(known)}" if known else "This page takes none"
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = [
        f"{_shown(name)!r} is no parameter of this page, and is ignored"
        f"{did_you_mean(name, known)}. {takes}."
        for name in given
        if name not in known
    ]
    repeated = [
        f"{name!r} is given several times, and the last one counts."
        for name, count in given.items()
        if count > 1 and name in known and name not in several
    ]
    return [*unknown, *repeated][:_MAX_NAMED]


def _parameters(endpoint: Callable[..., Any]) -> tuple[list[str], frozenset[str]]:
    """The query parameters of an operation, and which of them may have several values."""
    found = _FOUND.get(endpoint)
    if found is None:
        declared = dict(_declared_parameters(endpoint))
        lists = frozenset(name for name, is_list in declared.items() if is_list)
        found = _FOUND[endpoint] = sorted(declared), lists
    return found


def _declared_parameters(
    endpoint: Callable[..., Any], *, marked: bool = False
) -> Iterator[tuple[str, bool]]:
    """The query parameters of a function and of all that it depends on, and which are lists.

    Args:
        marked: whether only those count that are marked as such.
    """
    for each in inspect.signature(endpoint, eval_str=True).parameters.values():
        parts = getattr(each.annotation, "__metadata__", ())
        for part in parts:
            if isinstance(part, params.Query):
                yield part.alias or each.name, _is_list(each.annotation.__origin__)
            elif isinstance(part, params.Depends) and part.dependency is not None:
                yield from _declared_parameters(part.dependency, marked=True)
        if marked:
            continue
        if each.annotation not in (Request, each.empty) and not any(
            isinstance(part, _READ_OTHERWISE) for part in parts
        ):
            yield each.name, _is_list(each.annotation)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))


def _repetition_error(name: str) -> dict[str, Any]:
    message = "it has one value, and several are given: leave out all but one"
    return {"type": "too_long", "loc": ("query", name), "msg": message}


def _entry(name: str, known: Collection[str]) -> dict[str, Any]:
    """The error of an unknown parameter, in the form of pydantic's errors."""
    takes = f"known: {', '.join(known)}" if known else "this operation takes none"
    message = f"unknown parameter{did_you_mean(name, known)} ({takes})"
    return {"type": "extra_forbidden", "loc": ("query", _shown(name)), "msg": message}


def _shown(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
