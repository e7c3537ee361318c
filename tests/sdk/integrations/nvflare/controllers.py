"""``LocalSites``: NVFlare's server without NVFlare's network, for its controller in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.client import FLModel
from nvflare.fuel.utils import fobs

from modelkin.integrations.nvflare import ClusteredFedAvg

Answer = Callable[[FLModel], FLModel | str | None]
"""What a site makes of a message; the code of its failure, or None for no answer."""


def carried(model: FLModel) -> FLModel:
    """A message after its way through NVFlare's own forms; all but arrays as bytes."""
    found = FLModelUtils.from_shareable(FLModelUtils.to_shareable(copy.copy(model)))
    found.params = copy.deepcopy(found.params)
    found.meta = fobs.loads(fobs.dumps(found.meta))
    return found


def failed(name: str, code: str) -> FLContext:
    """What NVFlare's event of a task that failed comes with."""
    context, peer = FLContext(), FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
    context.set_peer_context(peer)
    context.set_prop(FLContextKey.TASK_RESULT, make_reply(code), private=True, sticky=False)
    return context


class LocalSites(ClusteredFedAvg):
    """A controller whose sites are functions.

    Args:
        sites: what each site answers, by name; may be changed between rounds.
        folder: the run's folder, also of the app.
        rules: arguments of the controller.
    """

    def __init__(self, sites: dict[str, Answer], folder: Path, **rules: Any) -> None:
        super().__init__(**rules)
        self.sites, self.folder, self.persistor = sites, folder, None
        self.abort_signal = Signal()
        self.engine = SimpleNamespace(get_clients=lambda: [SimpleNamespace(name=n) for n in sites])
        self.got: list[dict[str, FLModel]] = []

    def send_model(self, *, targets: list[str], data: FLModel, **named: Any) -> None:
        for name in targets:
            self.got[-1][name] = carried(data)
            answer = self.sites[name](carried(data))
            if isinstance(answer, str):
                self.handle_event(EventType.BEFORE_PROCESS_SUBMISSION, failed(name, answer))
            elif answer is not None:
                found = carried(answer)
                found.meta["client_name"] = name
                named["callback"](found)

    def event(self, event_type: str) -> None:
        self.got.append({})

    def get_num_standing_tasks(self) -> int:
        return 0

    def get_run_dir(self) -> str:
        return str(self.folder)

    def get_app_dir(self) -> str:
        return str(self.folder)

    def info(self, message: str) -> None:
        pass

    def warning(self, message: str) -> None:
        pass
