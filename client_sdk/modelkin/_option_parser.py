"""The parser of both command lines: argparse's, which notes the names of its options."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["OptionParser"]


class OptionParser(argparse.ArgumentParser):
    """A parser that notes the names of its options, those of its groups among them.

    Attributes:
        option_names: the names of all options, short ones too.
    """

    def __init__(self, **settings: Any) -> None:
        self.option_names: set[str] = set()
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an option as argparse does, and note its name."""
        return self._note(super().add_argument(*names, **settings))

    def add_argument_group(self, *args: Any, **settings: Any) -> Any:
        """Add a group as argparse does, and note its options."""
        return self._noting(super().add_argument_group(*args, **settings))

    def add_mutually_exclusive_group(self, **settings: Any) -> Any:
        """Add a group as argparse does, and note its options."""
        return self._noting(super().add_mutually_exclusive_group(**settings))

    def _note(self, action: argparse.Action) -> argparse.Action:
        self.option_names.update(action.option_strings)
        return action

    def _noting(self, group: Any) -> Any:
        """The group, whose options and groups are noted from now on."""
        add, nest = group.add_argument, group.add_mutually_exclusive_group
        group.add_argument = lambda *names, **settings: self._note(add(*names, **settings))
        group.add_mutually_exclusive_group = lambda **settings: self._noting(nest(**settings))
        return group
