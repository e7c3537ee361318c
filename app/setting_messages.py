"""Messages for operators about settings: invalid, unknown and former ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy.engine import make_url

from app.near_names import did_you_mean, nearest
from app.removed import SETTINGS as REMOVED
from app.settings import PREFIX, Settings
from app.validation_texts import text_of
from modelkin.errors import InvalidParameter

__all__ = ["dbos_leftovers", "settings_from_values", "unknown_variables", "validation_messages"]

_OF_OTHERS: Final = frozenset({"URL", "API_KEY", "KERNELS", "SPACE", "PROGRAM", "FAIL_POINTS"})
"""Names, without prefix, of variables that the SDK and :mod:`app.infra.fail_points` read."""


def dbos_leftovers(settings: Settings, environment: Iterable[str] | None = None) -> list[str]:
    """One line about leftovers of DBOS, the former queue of jobs; no line where there are none.

    Args:
        settings: settings that name the database; DBOS had a file beside it.
        environment: the names of the variables; by default this process's.
    """
    found = []
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        database = Path(str(url.database))
        file = database.with_name(f"{database.stem}.jobs{database.suffix}")
        found += [f"the file {file}"] if file.exists() else []
    names = os.environ if environment is None else environment
    found += [f"the variable {name}" for name in sorted(names) if name.startswith("DBOS_")]
    if not found:
        return []
    return [f"jobs need no DBOS any more, and all jobs are kept: {', '.join(found)} can go"]


def unknown_variables(environment: Iterable[str] | None = None) -> list[str]:
    """A line for each variable that was a setting, or looks like one and is not, with a near name.

    Args:
        environment: the names of the variables, in upper or lower case; by default this process's.
    """
    settings = {name.upper() for name in Settings.model_fields}
    names = sorted(os.environ if environment is None else environment)
    return [line for name in names if (line := _line_about(name, settings)) is not None]


def _line_about(name: str, settings: Collection[str]) -> str | None:
    """The line about a variable that is removed or unknown, or None."""
    if (was := REMOVED.get(name.upper())) is not None:
        return f"{name} was {was}; it is ignored, and can go"
    short = name.upper().removeprefix(PREFIX)
    if not name.upper().startswith(PREFIX) or short in {*settings, *_OF_OTHERS}:
        return None
    # Without the prefix, which all names share and which would make any two names near.
    near = nearest(short, settings)
    hint = "" if near is None else f"; did you mean {PREFIX}{near}?"
    return f"{name} is not a setting, and is ignored{hint}"


def settings_from_values(given: Mapping[str, Any], fixed: Mapping[str, Any]) -> Settings:
    """Settings from values that a program gives by name.

    Args:
        given: some settings.
        fixed: settings that the program cannot give.

    Raises:
        InvalidParameter: a name or a value cannot be; names it, and what there is.
    """
    known = Settings.model_fields.keys() - fixed.keys()
    for name in given:
        if name in fixed:
            reason = f"{name!r}: the client sets {', '.join(fixed)} itself"
        elif name not in known:
            hint = did_you_mean(name, known) or f"; there are: {', '.join(sorted(known))}"
            reason = f"{name!r}, which is no setting{hint}"
        else:
            continue
        raise InvalidParameter(f"settings has {reason}", field="settings")
    try:
        return Settings(**given, **fixed)
    except ValidationError as error:
        wrong = [
            f"settings[{'.'.join(map(str, entry['loc'])).lower()!r}]: "
            + text_of({**entry, "input": None})  # without the value: it may be a secret
            for entry in error.errors()
        ]
        raise InvalidParameter("; ".join(wrong), field="settings") from None


def validation_messages(error: ValidationError, arguments: Iterable[str] = ()) -> list[str]:
    """A line for each invalid setting: its flag or its variable, and why.

    Args:
        arguments: the arguments of the command line: a flag among them is named in place of its
            variable.
    """
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    return [
        f"{_setting_name(entry['loc'], given)}: {text_of({**entry, 'input': None})}"
        for entry in error.errors()
    ]


def _setting_name(place: tuple[int | str, ...], given: Container[str]) -> str:
    """The setting as its user has written it."""
    name = "_".join(map(str, place)).lower()
    flag = name.replace("_", "-")
    spellings = (f"--{flag}", f"--no-{flag}")
    return next((each for each in spellings if each in given), f"{PREFIX}{name.upper()}")
