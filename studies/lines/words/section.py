"""The table of words in the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from studies.sections.paragraphs import table

__all__ = ["ALL", "section"]

ALL: Final = "all"
"""The row of all architectures together."""
_ABOUT: Final = """\
What `relation` says of each derivative beside its base, by all keys and by default settings: a word
for what was done that is right, none, or a wrong one. Added are those that may be taken for others:
all roundings stored in as many bits as the base; trainings in few bits; means with the base, with a
fine-tune of it and with a stranger; noise; and each of these in the last half of the layers alone.
Nothing is declared of them, but where it is said to be an adapter. Bits are 16 a parameter, and
those of the format of what is rounded. Then the verdict on the base where that is declared, and
where a stranger is.
"""


def section(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Counts of all architectures."""
    yield _ABOUT
    kinds, verdicts = ("answers", "right", "open", "wrong"), ("confirmed", "open", "contradicted")
    columns = (*kinds, *(f"base {v}" for v in verdicts), *(f"stranger {v}" for v in verdicts))
    yield table(
        ("", *columns), [(of, *map("{:,.0f}".format, row.values())) for of, row in figures.items()]
    )
