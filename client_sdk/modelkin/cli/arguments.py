"""Parse the command line: the command, its options, and the errors for wrong ones.

Values that the domain checks anyway are not checked here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from modelkin._option_parser import OptionParser
from modelkin._terminal_text import one_line
from modelkin._version import __version__
from modelkin.cli.catalogue import COMMANDS, Command, by_name, command_lines
from modelkin.cli.style import HEAD, for_output, paint

__all__ = ["USAGE_ERROR", "option_names", "parse", "parser_of"]

USAGE_ERROR: Final = 2
"""The exit code for a command line that cannot be understood."""

_HELP: Final = ("-h", "--help")
_RENAMED: Final = {"--k": "--support-size", "-k": "--support-size", "--run": "modelkin cluster"}
"""Options of other commands, each with the option or command that does the same here."""
_OTHER_NAMES: Final = {
    **dict.fromkeys(("ls", "list"), "models, spaces or jobs"),
    **dict.fromkeys(("audit", "findings", "inbox"), "lineage"),
    **dict.fromkeys(("search", "find", "query", "similar", "nearest"), "neighbors"),
    **dict.fromkeys(("upload", "add", "put", "store"), "push"),
    **dict.fromkeys(("download", "get"), "pull"),
    **dict.fromkeys(("compare", "diff"), "overlap"),
    **dict.fromkeys(("info", "describe"), "show"),
    **dict.fromkeys(("status", "check"), "doctor"),
    **dict.fromkeys(("server", "run", "up"), "serve"),
    **dict.fromkeys(("webhooks", "alerts"), "subscriptions"),
    **dict.fromkeys(("hubs", "sync"), "sources"),
    "copies": "duplicates",
    "kin": "relatives",
}
"""Names that other programs have, each with the command that does that here."""
_REMOVALS: Final = ("rm", "remove", "delete", "del")
"""Words for one thing: each is the name of the command or action that has one of them."""
_ENDINGS: Final = ("revoke", "withdraw", "cancel")
"""Actions that may be meant by such a word where nothing can be deleted."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of one command; ``command`` is the function that executes it.

    Raises:
        SystemExit: with 2 for a usage error, with 0 after ``--help``.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in _HELP:
        _tell(_overview())
    if words[0] in ("--version", "version"):
        _tell(f"modelkin {__version__}")
    command, rest = _command(words)
    if command.name in _REMOVALS:
        words[len(words) - len(rest) - 1] = command.name
    return parser_of(" ".join(words[: len(words) - len(rest)]), command).parse_args(rest)


def parser_of(name: str, command: Command) -> OptionParser:
    """The parser of a command's options.

    Args:
        name: the command's name, followed by the action's where it has several.
        command: the command or the action.
    """
    add_options, function = command.load()
    summary = command.summary
    parser = _Parser(
        prog=f"modelkin {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        allow_abbrev=False,
    )
    parser.set_defaults(command=function, inputs=(), outputs=())
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="answer one JSON object")
    parser.add_argument(
        "--all", action="store_true", help="print all rows, of which a terminal gets the first 50"
    )
    return parser


def option_names(parser: OptionParser) -> list[str]:
    """The long names of a command's options."""
    return sorted(name for name in parser.option_names if name.startswith("--"))


class _Parser(OptionParser):
    """A parser whose errors are one line, and name the options that may be meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = list(args)
        self._check_options()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required") and "--space" in message:
            message += " (or set MODELKIN_SPACE)"
        _refuse(message, self.prog, self._words)

    def _check_options(self) -> None:
        """Refuse an unknown option; argparse would report missing options first."""
        known = self.option_names
        for word in self._words:
            if word == "--":
                return
            name = word.partition("=")[0]
            if not _is_option(name) or name in known or (name[1] != "-" and name[:2] in known):
                continue
            meant = _RENAMED.get(name) or _nearest(name, known)
            self.error(f"unknown option {name!r}{_hint(meant)}")


def _command(words: list[str]) -> tuple[Command, list[str]]:
    """The command or action that is named, and the words after its name."""
    known = by_name()
    command = _named(words[0], known)
    if command is None:
        if words[0].startswith("-"):
            _refuse(f"{words[0]!r} stands before the command: put options behind it", words=words)
        meant = _OTHER_NAMES.get(words[0]) or _nearest(words[0], known)
        _refuse(f"unknown command {words[0]!r}{_hint(meant)}", words=words)
    if not command.actions:
        return command, words[1:]
    return _action(command, words)


def _action(command: Command, words: list[str]) -> tuple[Command, list[str]]:
    rest = words[1:]
    if rest and rest[0] in _HELP:
        _tell(_group_help(command))
    if not rest or rest[0].startswith("-"):
        listed = command.action("list")
        if listed is None:
            which = ", ".join(action.name for action in command.actions)
            _refuse(f"say which of {which}", f"modelkin {command.name}", words)
        return listed, rest
    names = {each.name: each for each in command.actions}
    action = _named(rest[0], names)
    if action is None:
        ends = next((name for name in _ENDINGS if name in names), None)
        meant = ends if rest[0] in _REMOVALS else _nearest(rest[0], names)
        _refuse(f"unknown action {rest[0]!r}{_hint(meant)}", f"modelkin {command.name}", words)
    return action, rest[1:]


def _named(word: str, known: Mapping[str, Command]) -> Command | None:
    """The command or action of a name, or of another word for it."""
    words = (word, *_REMOVALS) if word in _REMOVALS else (word,)
    return next((known[name] for name in words if name in known), None)


def _is_option(word: str) -> bool:
    """Whether a word is an option's name and not ``-`` or a negative number."""
    return len(word) > 1 and word[0] == "-" and not (word[1].isdigit() or word[1] == ".")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # after a mistake alone

    return next(iter(get_close_matches(name, sorted(known), 1)), None)


def _hint(meant: str | None) -> str:
    return "" if meant is None else f"; did you mean {meant}?"


def _refuse(message: str, prog: str = "modelkin", words: Sequence[str] = ()) -> NoReturn:
    """Report a usage error, as an object where ``--json`` is given, and leave."""
    more = f"see {prog} --help"
    if "--json" in words:
        problem = {"title": "Wrong command line", "code": "usage", "detail": message, "help": more}
        sys.stderr.write(json.dumps(problem) + "\n")
    else:
        sys.stderr.write(f"{prog}: {one_line(message)} ({more})\n")
    raise SystemExit(USAGE_ERROR)


def _tell(text: str) -> NoReturn:
    sys.stdout.write(for_output(text) + "\n")
    raise SystemExit(0)


def _overview() -> str:
    """The text that ``modelkin`` alone prints: the commands by topic, and how to begin."""
    width = max(len(name) for name in by_name())
    topics = [
        "\n".join(
            [
                paint(topic.title, HEAD),
                *(f"  {each.name.ljust(width)}  {each.summary}" for each in topic.commands),
            ]
        )
        for topic in COMMANDS
    ]
    return "\n\n".join(
        [
            "modelkin finds which models are kin, by the indices of their most salient parameters.",
            "usage: modelkin COMMAND [OPTION ...]",
            *topics,
            f"{paint('Where', HEAD)}\n"
            "  MODELKIN_URL, MODELKIN_API_KEY and MODELKIN_SPACE stand in for --url, --api-key\n"
            "  and --space. `modelkin doctor` says what is missing, `modelkin COMMAND --help` the\n"
            "  options. Every command takes --json.",
        ]
    )


def _group_help(command: Command) -> str:
    usage = f"usage: modelkin {command.name} ACTION [OPTION ...]"
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    return "\n\n".join([usage, summary, command_lines(command.actions)])
