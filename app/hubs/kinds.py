"""``HUB_KINDS``: the kinds of hub, an entry for each, with all that they do differently.

Clients, webhooks, rules of sources, the API's schema and the pages read this table. The SDK's type
and the database's constraint cannot: ``tests/app/hubs/test_kinds.py`` compares them with it. The
API's reference describes the kinds in sentences of its own, in ``endpoints``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from app.hubs.clients import huggingface as huggingface_client
from app.hubs.clients import mlflow as mlflow_client
from app.hubs.clients.http import HubHttpClient, Refusal
from app.hubs.clients.protocol import Hub
from app.hubs.incoming import huggingface as huggingface_webhooks
from app.hubs.incoming import mlflow as mlflow_webhooks
from app.hubs.incoming.events import WebhookReader

__all__ = ["DEFAULT_HUB_KIND", "HUB_KINDS", "PUBLIC_HOSTS", "HubKind", "HubKindName"]


@dataclass(frozen=True, slots=True)
class HubKind:
    """A kind of hub.

    Attributes:
        name: the ``kind`` of its sources.
        label: its name on pages.
        client: makes the hub client that sends its requests through this HTTP client.
        authorization: the ``Authorization`` header for a token.
        refusal: reads the statuses of 400 to 499 of the hub's answers.
        webhooks: verifies and parses the hub's webhooks.
        webhook_advice: the sentence that tells a person which events to choose at the hub.
        address: the URL that the form of a source suggests; None to suggest none.
        public_hosts: hosts with too many models to list them all.
        owners_refusal: the reason to refuse a filter by owners; None where models have owners.
    """

    name: str
    label: str
    client: Callable[[HubHttpClient], Hub]
    authorization: Callable[[str], str]
    refusal: Refusal
    webhooks: WebhookReader
    webhook_advice: str
    address: str | None = None
    public_hosts: frozenset[str] = frozenset()
    owners_refusal: str | None = None


HUB_KINDS: Final[Mapping[str, HubKind]] = {
    kind.name: kind
    for kind in (
        HubKind(
            name="huggingface",
            label="Hugging Face",
            client=huggingface_client.HuggingFace,
            authorization="Bearer {}".format,
            refusal=huggingface_client.refusal,
            webhooks=huggingface_webhooks,
            webhook_advice="At the hub: Settings, Webhooks; the events of repositories.",
            address="https://huggingface.co",
            public_hosts=frozenset({"huggingface.co", "www.huggingface.co", "hf.co"}),
        ),
        HubKind(
            name="mlflow",
            label="MLflow",
            client=mlflow_client.MLflow,
            authorization=mlflow_client.authorization,
            refusal=mlflow_client.refusal,
            webhooks=mlflow_webhooks,
            webhook_advice="At the registry: the events of model versions and their aliases.",
            owners_refusal="the models of an MLflow registry have no owners: use repos",
        ),
    )
}
"""The kinds by name. The form of a new source lists them in this order."""

DEFAULT_HUB_KIND: Final = next(iter(HUB_KINDS.values()))
"""The kind that the form of a new source preselects, and that checks hooks without a source."""

PUBLIC_HOSTS: Final = frozenset(host for kind in HUB_KINDS.values() for host in kind.public_hosts)

if TYPE_CHECKING:
    HubKindName: TypeAlias = str
else:  # a type checker takes no computed ``Literal``; pydantic validates by it
    HubKindName = Literal[tuple(HUB_KINDS)]
