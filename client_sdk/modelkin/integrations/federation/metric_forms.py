"""Metrics of another form than most clients have, by which a client is left out.

The app's own function averages the metrics, or computes something else. A list in place of a number
could raise an error there, and a name that one client lacks would leave all without a mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

__all__ = ["Forms", "forms_of", "odd_forms"]

Id = TypeVar("Id", int, str)
Forms = Mapping[str, str]
"""The form of each metric by name; ``""`` is for what holds them all."""


def forms_of(metrics: object) -> dict[str, str]:
    """The form of each metric that has a name; of what is no mapping, none."""
    if not isinstance(metrics, Mapping):
        return {}
    return {name: _form(value) for name, value in metrics.items() if isinstance(name, str)}


def odd_forms(forms: Mapping[Id, Forms]) -> dict[Id, str]:
    """The reasons why some clients' metrics cannot be averaged with those of most, by client.

    Where two forms are as common, the one with more counts: to send none is no majority.
    """
    counted = Counter(tuple(sorted(form.items())) for form in forms.values())
    if not counted:
        return {}
    _, _, most = max((count, len(form), form) for form, count in counted.items())
    usual = dict(most)
    return {
        client: f"its metrics differ from those of most: {_difference(form, usual)}"
        for client, form in forms.items()
        if form != usual
    }


def _form(value: object) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if is_number and not isinstance(value, bool):
        return "a number"
    return f"of type {type(value).__name__}"


def _difference(form: Forms, usual: Forms) -> str:
    """The names that only one of two forms has, or else the metrics that differ."""
    names = sorted(form.keys() ^ usual.keys())
    if names:
        return ", ".join(name[:80] for name in names)
    return ", ".join(
        f"{name[:80] or 'they'} {'is' if name else 'are'} {form[name]}, not {usual[name]}"
        for name in sorted(form)
        if form[name] != usual[name]
    )
