"""In-flight deliveries, one thread each.

The job that starts them does not wait, so a slow receiver delays only itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.infra.errors import explain
from app.webhooks.repositories.deliveries import Delivery
from modelkin.errors import ModelkinError

__all__ = ["THREAD", "InFlightDeliveries"]

THREAD = "deliver"
"""The name of the threads."""

log = logging.getLogger(__name__)


class InFlightDeliveries:
    """The attempts of this process that are in flight. Safe for many threads."""

    def __init__(self) -> None:
        self._deliveries: dict[str, Delivery] = {}
        self._lock = threading.Lock()

    def deliveries(self) -> list[Delivery]:
        """The deliveries in flight."""
        with self._lock:
            return list(self._deliveries.values())

    def begin(
        self, delivery: Delivery, attempt: Callable[[], None], then: Callable[[], None]
    ) -> None:
        """Make an attempt in the background. An interrupted one becomes due again by itself.

        Args:
            then: called when the attempt has ended, with or without an error.
        """

        def run() -> None:
            try:
                attempt()
            except ModelkinError as error:
                log.warning(
                    "the outcome of delivery %s is not recorded: %s", delivery.id, explain(error)
                )
            except Exception:
                log.exception("the outcome of delivery %s is not recorded", delivery.id)
            finally:
                with self._lock:
                    del self._deliveries[delivery.id]
            then()

        with self._lock:
            self._deliveries[delivery.id] = delivery
        threading.Thread(target=run, name=THREAD, daemon=True).start()
