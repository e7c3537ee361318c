"""``Script``: a site's script around a ``ClusterClient``, without NVFlare's processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nvflare import client as flare
from nvflare.client import FLModel

from modelkin.integrations.nvflare import ClusterClient

Model = dict[str, np.ndarray[Any, Any]]


def initial() -> Model:
    """The weights that a job begins with."""
    rng = np.random.default_rng(0)
    return {
        "body.w": rng.normal(size=(20, 9)).astype(np.float32),
        "head.b": rng.normal(size=20).astype(np.float32),
    }


def draws(name: str) -> tuple[np.random.Generator, np.random.Generator]:
    """What a site's kind has in common, and what is its own: odd sites are of one kind."""
    number = int(name.removeprefix("site-"))
    return np.random.default_rng(number % 2), np.random.default_rng(100 + number)


def importance(name: str) -> np.ndarray[Any, Any]:
    common, own = draws(name)
    return np.asarray(common.random(200) ** 4 + 0.05 * own.random(200), np.float32)


def trained(params: Model, name: str) -> Model:
    common, own = draws(name)
    return {
        n: (v + 0.3 * common.normal(size=v.shape) + 0.01 * own.normal(size=v.shape)).astype(v.dtype)
        for n, v in sorted(params.items())
    }


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
