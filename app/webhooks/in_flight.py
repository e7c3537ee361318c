"""The attempts that this process makes, a thread each: they outlive the job that began them, which
would else wait for the slowest receiver of all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.webhooks.delivery_repository import Delivery
from modelkin.errors import ModelkinError

__all__ = ["THREAD", "InFlightDeliveries"]

THREAD = "deliver"
"""The name of each thread."""

log = logging.getLogger(__name__)


class InFlightDeliveries:
    """Attempts under way. For many threads."""

    def __init__(self) -> None:
        self._deliveries: dict[str, Delivery] = {}
        self._lock = threading.Lock()

    def deliveries(self) -> list[Delivery]:
        """What is being sent."""
        with self._lock:
            return list(self._deliveries.values())

    def begin(
        self, delivery: Delivery, attempt: Callable[[], None], then: Callable[[], None]
    ) -> None:
        """Make an attempt in the background. One that is cut short is due again by itself.

        Args:
            then: called when it is no more under way, whatever came of it.
        """

        def run() -> None:
            try:
                attempt()
            except ModelkinError as error:
                log.warning("what came of delivery %s is not recorded: %s", delivery.id, error)
            except Exception:
                log.exception("what came of delivery %s is not recorded", delivery.id)
            finally:
                with self._lock:
                    del self._deliveries[delivery.id]
            then()

        with self._lock:
            self._deliveries[delivery.id] = delivery
        threading.Thread(target=run, name=THREAD, daemon=True).start()
