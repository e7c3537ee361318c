"""``Silence``: why sites that were asked sent no model, as far as NVFlare tells the server."""

from __future__ import annotations

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

__all__ = ["Silence"]


class Silence:
    """What came of a task in place of an answer, by the names of sites."""

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._timeout = 0

    def begin(self, timeout: int) -> None:
        """Begin to wait for answers, for so many seconds; 0 for as long as sites are there."""
        self._codes, self._timeout = {}, timeout

    def note(self, event_type: str, context: FLContext) -> None:
        """Note the code of a task that failed, of NVFlare's events on the server."""
        if event_type != EventType.BEFORE_PROCESS_SUBMISSION:
            return
        result, peer = context.get_prop(FLContextKey.TASK_RESULT), context.get_peer_context()
        if isinstance(result, Shareable) and isinstance(peer, FLContext):
            code = result.get_return_code(default=ReturnCode.OK)
            if code != ReturnCode.OK:
                self._codes[str(peer.get_identity_name())] = str(code)

    def why(self, name: str) -> str:
        """The reason why nothing came of a site."""
        if name in self._codes:
            return (
                f"its script failed ({self._codes[name]}): log.txt of its workspace, on the site's "
                f"own machine, has the error"
            )
        if self._timeout:
            return f"it did not answer within {self._timeout} s"
        return "it did not answer, and NVFlare no longer waits for it: it is gone"
