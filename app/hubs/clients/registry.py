"""``HubRegistry``: opens the hub client of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.hubs.clients.pauses import Pauses
from app.hubs.clients.protocol import Hub, HubSource
from app.hubs.kinds import HUB_KINDS
from app.infra.egress.client import Egress
from modelkin.errors import InvalidParameter

__all__ = ["HubRegistry"]


class HubRegistry:
    """Opens the hub clients of sources.

    Args:
        egress: the maker of guarded HTTP clients.
        limits: the limits of bytes and time, for everything that a hub sends.
    """

    def __init__(self, egress: Egress, limits: TransferLimits) -> None:
        self._egress = egress
        self.limits = limits
        self._pauses = Pauses()

    @contextmanager
    def hub_of(
        self, source: HubSource, before_request: Callable[[], None] = lambda: None
    ) -> Iterator[Hub]:
        """Open the hub of a source for the length of the block.

        Args:
            before_request: called before every request; an error that it raises ends the work.

        Raises:
            HubForbidden: the source's token cannot be sent.
            InvalidParameter: the source has no url, so its hub events are only recorded.
        """
        if source.url is None:
            raise InvalidParameter(
                "the source has no url, so its hub events are only recorded: PATCH it with the "
                "hub's address for its models to be read",
                field="url",
            )
        with closing(self._transfer(source.url, source, before_request)) as transfer:
            yield HUB_KINDS[source.kind].client(transfer)

    def _transfer(
        self, url: str, source: HubSource, before_request: Callable[[], None]
    ) -> HubHttpClient:
        kind = HUB_KINDS[source.kind]
        return HubHttpClient(
            url,
            self._egress,
            authorization=None if source.token is None else kind.authorization(source.token),
            limits=self.limits,
            refusal=kind.refusal,
            before_request=before_request,
            pauses=self._pauses,
        )
