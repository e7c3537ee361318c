"""``PartyState``: what a party of a merge keeps when its process ends.

Its key and token are secrets, so the file is private. It is replaced whole and synchronised before
anything leaves that depends on it. It never has a value of a model, but only their fingerprint.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.federation.sharing import new_key

__all__ = ["PartyState"]

_FORMAT: Final = "modelkin merge party 1"


class PartyState:
    """The state of one party of one merge, restored from its file if there is one.

    Args:
        path: the file; None to go on in this process alone.
        party: the space, the merge and the party's name.
        fingerprint: of the values that it began with; None of a neutral party.

    Attributes:
        fingerprint: likewise.
        key: its private key.
        token: by which the service knows it again.
        joined: whether it has.
        created: when the merge was created that it joins; empty before.
        plan: of that merge; None before.
        concealed_for: the members for whom its values are concealed; None before any are.
        released: the attempt whose results it has sent; None before.

    Raises:
        InvalidParameter: the file is of another party, or of other values.
        OSError: it cannot be read.
    """

    def __init__(
        self, path: Path | None, party: tuple[str, str, str], fingerprint: str | None
    ) -> None:
        self._path, self._party = path, party
        self.fingerprint = fingerprint
        self.created = ""
        self.plan: Plan | None = None
        self.begin_again()
        if path is not None and path.exists():
            self._restore(path)

    def begin_again(self) -> None:
        """Forget what was done for a merge that another one of the same name has replaced."""
        self.key, self.token, self.joined = new_key(), secrets.token_urlsafe(32), False
        self.concealed_for: list[int] | None = None
        self.released: int | None = None

    def save(self) -> None:
        """Write the file, and return once it survives the machine."""
        if self._path is None:
            return
        space, merge, model = self._party
        state = {
            "format": _FORMAT,
            "space": space,
            "merge": merge,
            "model": model,
            "private_key": self.key.hex(),
            "token": self.token,
            "joined": self.joined,
            "created": self.created,
            "values": self.fingerprint,
            "plan": None if self.plan is None else self.plan.to_json(),
            "concealed_for": self.concealed_for,
            "released": self.released,
        }
        beside = self._path.with_name(f"{self._path.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)

    def forget(self) -> None:
        """Delete the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def change_message(self) -> str:
        """What to say of values that are not those that the party began with."""
        without = "" if self._path is None else f" without {self._path}"
        return (
            f"the values have changed since this party began: restore them, or begin again{without}"
        )

    def _restore(self, path: Path) -> None:
        try:
            state: Mapping[str, Any] = json.loads(path.read_text())
            found = tuple(state[name] for name in ("format", "space", "merge", "model"))
            self.key = bytes.fromhex(state["private_key"])
            self.token, self.joined = state["token"], state["joined"]
            self.created = state["created"]
            self.concealed_for, values = state["concealed_for"], state["values"]
            self.released = state["released"]
            self.plan = Plan.from_json(state["plan"])
        except (ValueError, KeyError, TypeError):
            raise InvalidParameter(
                f"{path} is not the state of a party: move it away", field="state"
            ) from None
        if found != (_FORMAT, *self._party):
            raise InvalidParameter(
                f"{path} is the state of {found[3]!r} in merge {found[2]!r}: name another file",
                field="state",
            )
        if values != self.fingerprint:
            raise InvalidParameter(self.change_message(), field="values")
