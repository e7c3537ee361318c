"""The command ``completion``: a script that completes commands, actions and options in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from modelkin.cli.output import Answer

__all__ = ["completion", "completion_options"]

_INSTALL: Final = {
    "bash": 'eval "$(modelkin completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(modelkin completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "modelkin completion fish | source   # in ~/.config/fish/config.fish",
}


def completion_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``completion``."""
    parser.add_argument("shell", choices=tuple(_INSTALL), help="the shell that the script is for")


def completion(arguments: argparse.Namespace) -> Answer:
    """``modelkin completion``: the script, made of the commands as they are."""
    words = _words()
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](words)
    script = f"# {_INSTALL[arguments.shell]}\n{made}"
    return Answer(script, {"shell": arguments.shell, "script": script}, whole=True)


def _words() -> dict[str, list[str]]:
    """The words that may follow each command, ``push``, and each action, ``jobs list``.

    The commands themselves stand under the empty name.
    """
    from modelkin.cli.arguments import option_names, parser_of  # which has imported this module
    from modelkin.cli.catalogue import by_name, leaves

    words = {"": [*by_name(), "help"]}
    for command in by_name().values():
        words[command.name] = [action.name for action in command.actions]
    for name, command in leaves():
        options = option_names(parser_of(name, command))
        words[name] = options
        if command.name == "list":
            words[name.partition(" ")[0]] += options
    return words


def _function(words: Mapping[str, list[str]]) -> str:
    """A shell function that prints the words that may follow command ``$1`` and action ``$2``."""

    def cases(which: dict[str, list[str]]) -> str:
        return "\n".join(f'    "{name}") echo "{" ".join(w)}" ;;' for name, w in which.items())

    return f"""_modelkin_words() {{
  case "$1 $2" in
{cases({name: w for name, w in words.items() if " " in name})}
    *) case "$1" in
{cases({name: w for name, w in words.items() if " " not in name})}
    esac ;;
  esac
}}"""


def _bash(words: Mapping[str, list[str]]) -> str:
    return f"""{_function(words)}
_modelkin() {{
  local name="" action=""
  if [ "$COMP_CWORD" -gt 1 ]; then name="${{COMP_WORDS[1]}}"; fi
  if [ "$COMP_CWORD" -gt 2 ]; then action="${{COMP_WORDS[2]}}"; fi
  COMPREPLY=($(compgen -W "$(_modelkin_words "$name" "$action")" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _modelkin modelkin"""


def _zsh(words: Mapping[str, list[str]]) -> str:
    return f"""{_function(words)}
_modelkin() {{
  local name="" action=""
  if (( CURRENT > 2 )); then name="$words[2]"; fi
  if (( CURRENT > 3 )); then action="$words[3]"; fi
  local -a found
  found=($(_modelkin_words "$name" "$action"))
  compadd -a found || _files
}}
compdef _modelkin modelkin"""


def _fish(words: Mapping[str, list[str]]) -> str:
    lines = []
    for name, following in words.items():
        command, _, action = name.partition(" ")
        seen = "__fish_seen_subcommand_from"
        when = f"{seen} {command}; and {seen} {action}" if action else f"{seen} {command}"
        if not command:
            when = "__fish_use_subcommand"
        files = "" if action or words[name][0].startswith("-") else "-f "
        lines.append(f"complete -c modelkin {files}-n '{when}' -a '{' '.join(following)}'")
    return "\n".join(lines)
