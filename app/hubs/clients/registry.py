"""Opens hubs: which one a source means, and the way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from app.hubs.clients import huggingface, mlflow
from app.hubs.clients.http import HubHttpClient, Refusal, TransferLimits
from app.hubs.clients.huggingface import HuggingFace
from app.hubs.clients.mlflow import MLflow
from app.hubs.clients.protocol import Hub, HubSource
from app.infra.egress.client import Egress
from modelkin.errors import InvalidParameter

__all__ = ["HubRegistry"]

_WAYS: Mapping[str, tuple[Callable[[str], str], Refusal]] = {
    "huggingface": ("Bearer {}".format, huggingface.refusal),
    "mlflow": (mlflow.authorization, mlflow.refusal),
}
"""What a token is sent as, and what a refusal means."""


class HubRegistry:
    """Opens the hubs of sources.

    Args:
        egress: the way out of the service.
        limits: of everything that a hub sends.
    """

    def __init__(self, egress: Egress, limits: TransferLimits) -> None:
        self._egress = egress
        self.limits = limits

    @contextmanager
    def hub_of(self, source: HubSource, heard: Callable[[], None] = lambda: None) -> Iterator[Hub]:
        """The hub of a source, for as long as the block runs.

        Args:
            heard: called before every request; what it raises ends all.

        Raises:
            HubForbidden: its token cannot be sent.
            InvalidParameter: the source has no url, so that its deliveries are only recorded.
        """
        if source.url is None:
            raise InvalidParameter(
                "the source has no url, so its deliveries are only recorded: PATCH it with the "
                "hub's address for its models to be read",
                field="url",
            )
        with closing(self._transfer(source.url, source, heard)) as transfer:
            yield HuggingFace(transfer) if source.kind == "huggingface" else MLflow(transfer)

    def _transfer(self, url: str, source: HubSource, heard: Callable[[], None]) -> HubHttpClient:
        authorization, refusal = _WAYS[source.kind]
        return HubHttpClient(
            url,
            self._egress,
            authorization=None if source.token is None else authorization(source.token),
            limits=self.limits,
            refusal=refusal,
            heard=heard,
        )
