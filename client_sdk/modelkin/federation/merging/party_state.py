"""``PartyState``: the state of a party of a merge, which outlasts its process.

The key and the token are secrets, so the file is private. It is replaced whole and synchronised
before anything leaves that depends on it. It has no values of a model, only their fingerprint.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelkin._whole_files import WholeFile
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.federation.sharing import new_key

__all__ = ["PartyState"]

_FORMAT: Final = "modelkin merge party 1"


class PartyState:
    """The state of one party of one merge, restored from its file if there is one.

    Args:
        path: the file's path; None to keep no file.
        party: the space, the merge and the party's name.
        fingerprint: the digest of the party's values; None for a neutral party.

    Attributes:
        fingerprint: the digest of the values that the party began with; other values are refused.
        key: the party's private key.
        token: a random secret of the party, by which the service recognises it.
        joined: whether the party has joined.
        created: the time at which the joined merge was created; empty before joining.
        plan: M, A and all else that the parties agree on; None before joining.
        roster: the digest of the roster, in hexadecimal; None before it is fixed.
        concealed_for: the members that the values are concealed for; None before concealing.
        restored: whether an earlier process began.
        released: the attempt whose results the party has sent; None before sending.

    Raises:
        InvalidParameter: the file is of another party, or of other values.
        OSError: the file cannot be read.
    """

    def __init__(
        self, path: Path | None, party: tuple[str, str, str], fingerprint: str | None
    ) -> None:
        self._path, self._party = path, party
        self.fingerprint = fingerprint
        self.created = ""
        self.plan: Plan | None = None
        self.begin_again()
        self.restored = path is not None and path.exists()
        if path is not None and self.restored:
            self._restore(path)

    def begin_again(self) -> None:
        """Forget the steps in a merge that another merge of the same name has replaced."""
        self.key, self.token, self.joined = new_key(), secrets.token_urlsafe(32), False
        self.roster: str | None = None
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
            "roster": self.roster,
            "concealed_for": self.concealed_for,
            "released": self.released,
        }
        with WholeFile(self._path, 0o600) as whole:
            whole.file.write(json.dumps(state).encode())
            whole.finish()

    def forget(self) -> None:
        """Delete the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def change_message(self) -> str:
        """The message for values that differ from those that the party began with."""
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
            self.roster = state.get("roster")  # files of version 0.2 have none
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
