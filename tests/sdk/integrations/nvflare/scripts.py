"""``Script``: a site's script around a ``ClusterClient``, without NVFlare's processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvflare import client as flare
from nvflare.client import FLModel

from modelkin.integrations.nvflare import ClusterClient
from tests.support.federations.plain_kinds import importance, initial, trained


class Script:
    """A site's script around a ``ClusterClient``, one message at a time.

    Args:
        name: the site's name.
        change: changes what it sends, by the number of the training.
        how: arguments of the ``ClusterClient``.
    """

    def __init__(
        self, name: str, change: Callable[[FLModel, int], FLModel | None], **how: Any
    ) -> None:
        self._name, self._change, self._count = name, change, 0
        self._client = ClusterClient(**how)

    def __call__(self, message: FLModel) -> FLModel | None:
        sent: list[FLModel] = []
        with pytest.MonkeyPatch.context() as patch:
            waiting = [message]
            patch.setattr(flare, "is_running", lambda: bool(waiting))
            patch.setattr(flare, "receive", waiting.pop)
            patch.setattr(flare, "send", sent.append)
            patch.setattr(flare, "get_site_name", lambda: self._name)
            for received in self._client.trainings():
                self._count += 1
                self._client.hand_over(importance(self._name))
                params = trained({**initial(), **received.params}, self._name)
                own = {"NUM_STEPS_CURRENT_ROUND": int(self._name[-1])}
                changed = self._change(FLModel(params=params, meta=own), self._count)
                if changed is not None:
                    self._client.send(changed)
        return sent[0] if sent else None
