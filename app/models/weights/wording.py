"""The words that say how the files of equal weights differ."""

from __future__ import annotations

from collections.abc import Mapping

from modelkin.types.models import DuplicateModel

__all__ = ["difference", "form"]


def difference(copy: DuplicateModel, first: DuplicateModel) -> str:
    """Say that a model has the weights of another, and in which other form."""
    return ", ".join(filter(None, (f"the same weights as {first.model}", form(copy, first))))


def form(copy: DuplicateModel, first: DuplicateModel) -> str:
    """The form of a model's files where it is not that of another's; empty where it is."""
    says = []
    if copy.files != first.files:
        says.append(f"in {_files(copy.files)} instead of {first.files:,}")
    ours, theirs = _dtypes(copy.dtypes), _dtypes(first.dtypes)
    if ours != theirs:
        says.append(f"in {ours} instead of {theirs}")
    return ", ".join(says)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _dtypes(counts: Mapping[str, int]) -> str:
    """The dtypes, the one of most parameters first."""
    return " and ".join(sorted(counts, key=lambda dtype: (-counts[dtype], dtype)))
