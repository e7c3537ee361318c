"""Query parameters: an operation refuses parameters that it does not declare.

A misspelt parameter would be ignored otherwise, and so would all but the last value of a parameter
that takes one value. The answer would be one to another question. Operations of routers that are
``AUTHENTICATED`` refuse them. Pages do not, nor do webhooks and health checks: hubs may append
parameters to an address, and so may probes and proxies.
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

__all__ = ["refuse_unknown"]

_MAX_NAMED: Final = 20
"""Unknown parameters that an answer names."""
_MAX_SHOWN: Final = 60
"""Characters of a name that are shown."""
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


def _parameters(endpoint: Callable[..., Any]) -> tuple[list[str], frozenset[str]]:
    """The query parameters of an operation, and which of them may have several values."""
    found = _FOUND.get(endpoint)
    if found is None:
        declared = dict(_declared_parameters(endpoint))
        lists = frozenset(name for name, is_list in declared.items() if is_list)
        found = _FOUND[endpoint] = sorted(declared), lists
    return found


def _declared_parameters(endpoint: Callable[..., Any]) -> Iterator[tuple[str, bool]]:
    """The query parameters of a function and of all that it depends on, and which are lists."""
    for each in inspect.signature(endpoint, eval_str=True).parameters.values():
        for part in getattr(each.annotation, "__metadata__", ()):
            if isinstance(part, params.Query):
                yield part.alias or each.name, _is_list(each.annotation.__origin__)
            elif isinstance(part, params.Depends) and part.dependency is not None:
                yield from _declared_parameters(part.dependency)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))


def _repetition_error(name: str) -> dict[str, Any]:
    message = "it has one value, and several are given: leave out all but one"
    return {"type": "too_long", "loc": ("query", name), "msg": message}


def _entry(name: str, known: Collection[str]) -> dict[str, Any]:
    """The error of an unknown parameter, in the form of pydantic's errors."""
    takes = f"known: {', '.join(known)}" if known else "this operation takes none"
    shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
    message = f"unknown parameter{did_you_mean(name, known)} ({takes})"
    return {"type": "extra_forbidden", "loc": ("query", shown), "msg": message}
