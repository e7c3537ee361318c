"""Opens hubs: which one a source means, and the way there."""

from __future__ import annotations

from collections.abc import Callable

from app.services.egress.clients import Egress
from app.services.hubs import huggingface, mlflow
from app.services.hubs.huggingface import HuggingFace
from app.services.hubs.mlflow import MLflow
from app.services.hubs.ports import Hub, HubSource
from app.services.hubs.transfer import Limits, Refusal, Transfer
from modelkin.errors import InvalidParameter

__all__ = ["Hubs"]


class Hubs:
    """Opens the hubs of sources.

    Args:
        egress: the way out of the service.
        limits: of everything that a hub sends.
    """

    def __init__(self, egress: Egress, limits: Limits) -> None:
        self._egress = egress
        self.limits = limits

    def hub_of(self, source: HubSource, heard: Callable[[], None] = lambda: None) -> Hub:
        """The hub of a source; close it.

        Args:
            heard: called before every request; what it raises ends all.

        Raises:
            HubRefused: its token cannot be sent.
            InvalidParameter: the source has no url, so that its deliveries are only recorded.
        """
        if source.url is None:
            raise InvalidParameter(
                "the source has no url, so its deliveries are only recorded: PATCH it with the "
                "hub's address for its models to be read",
                field="url",
            )
        token = source.token
        if source.kind == "huggingface":
            bearer = None if token is None else f"Bearer {token}"
            transfer = self._transfer(source.url, bearer, huggingface.refusal, heard)
            return HuggingFace(transfer)
        header = None if token is None else mlflow.authorization(token)
        return MLflow(self._transfer(source.url, header, mlflow.refusal, heard))

    def _transfer(
        self, url: str, authorization: str | None, refusal: Refusal, heard: Callable[[], None]
    ) -> Transfer:
        return Transfer(
            url,
            self._egress,
            authorization=authorization,
            limits=self.limits,
            refusal=refusal,
            heard=heard,
        )
