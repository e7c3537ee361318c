"""The words that say how the files of equal weights differ."""

from __future__ import annotations

from modelkin.types.models import DuplicateModel

__all__ = ["difference", "form"]


def difference(copy: DuplicateModel, first: DuplicateModel) -> str:
    """Say that a model has the weights of another, and in how many other shards."""
    return ", ".join(filter(None, (f"the same weights as {first.model}", form(copy, first))))


def form(copy: DuplicateModel, first: DuplicateModel) -> str:
    """The number of a model's files where it is not that of another's; empty where it is."""
    if copy.files == first.files:
        return ""
    other = f"{first.files:,}" if copy.files > 1 and first.files > 1 else _files(first.files)
    return f"in {_files(copy.files)} instead of {other}"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} shards"
