"""The tree of what the service refuses: drawn whole, one code a class, a status for each."""

from __future__ import annotations

import re
from collections import Counter

import app.infra.errors
from app.infra.http import problems
from modelkin.errors import ModelkinError

ERRORS = {
    name: value
    for name, value in vars(app.infra.errors).items()
    if isinstance(value, type)
    and issubclass(value, ModelkinError)
    and value.__module__.startswith("app.infra.errors.")
}


def test_all_classes_are_listed_and_drawn() -> None:
    """``__all__`` and the tree in the docstring name every class of the module; * is the SDK's."""
    tree = (app.infra.errors.__doc__ or "").partition("The rule:")[0]
    drawn = set(re.findall(r"^    [│ ]*[├└]── (\w+)(?!\w|\*)", tree, re.MULTILINE))
    beside = {"Explanation", "explain", "is_announced"}
    assert set(ERRORS) == set(app.infra.errors.__all__) - beside == drawn


def test_each_is_drawn_below_its_parent() -> None:
    """The drawing nests the classes as they inherit."""
    line = re.compile(r"^    (?P<indent>[│ ]*)[├└]── (?P<name>\w+)", re.MULTILINE)
    path = ["ModelkinError"]
    for found in line.finditer(app.infra.errors.__doc__ or ""):
        depth = len(found["indent"]) // 4 + 1
        path[depth:] = [found["name"]]
        if (error := ERRORS.get(found["name"])) is not None:
            assert path[depth - 1] == error.__mro__[1].__name__


def test_no_two_classes_define_a_code() -> None:
    """A code belongs to one class; SupportRequired and QueueFull borrow theirs on purpose."""
    own = [error for error in ERRORS.values() if "code" in vars(error)]
    assert {app.infra.errors.RetryLater} == set(ERRORS.values()) - set(own)  # it is Unavailable
    counted = Counter(error.code for error in own)
    shared = {code for code, times in counted.items() if times > 1}
    assert {"support_missing", "quota_exceeded"} == shared


def test_every_refusal_of_a_request_has_a_status() -> None:
    """Only what a request never raises has none: a hub's refusals, which end jobs."""
    without = {name for name, error in ERRORS.items() if problems.status_of(error) == 500}
    assert without == {
        "EgressRefused",
        "HubForbidden",
        "HubProtocolError",
        "HubTimeout",
        "JobTimeout",
    }
