"""The tree of errors: each can be sent to another process, and says there what it said here."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import app.infra.errors  # noqa: F401  # the tree holds the service's errors too
from modelkin.errors import ModelkinError

SPENT = SimpleNamespace(remaining=0, reset=7, quota=SimpleNamespace(name="writes", limit=60))
GIVEN = {
    "errors": ({"field": "k", "message": "too large"},),
    "retry_after": 7,
    "status": 404,
    "taken": SimpleNamespace(standings=(SPENT,)),
}
"""The arguments of errors that are not texts."""


def tree(error: type[ModelkinError]) -> list[type[ModelkinError]]:
    """An error and all that are more special."""
    return [error, *(below for kind in error.__subclasses__() for below in tree(kind))]


def example(error: type[ModelkinError]) -> ModelkinError:
    """One of its kind, with everything given that can be."""
    parameters = list(inspect.signature(error.__init__).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return error("something is wrong")
    keyword = {p.name: GIVEN.get(p.name, f"the {p.name}") for p in parameters}
    return error(**keyword)


@pytest.mark.parametrize("error", tree(ModelkinError), ids=lambda error: error.__name__)
@pytest.mark.parametrize(
    "sent",
    [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_an_error_is_the_same_elsewhere(
    error: type[ModelkinError], sent: Callable[[Any], Any]
) -> None:
    """Its type, code, message and attributes survive pickling and copying."""
    here = example(error)
    there = sent(here)
    assert type(here) is type(there)
    assert (str(here), here.args, vars(here)) == (str(there), there.args, vars(there))
    assert here.code == there.code
    assert str(here)
