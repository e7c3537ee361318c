"""``Once`` and ``SecretOnce``: parameters of endpoints whose requests may be sent again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from app.auth.dependencies import WritingTenant
from app.auth.records import Tenant
from app.idempotency.records import Answer
from app.idempotency.service import IdempotencyService
from app.infra.db.database import Writer
from app.infra.http.dependencies import Writing
from app.infra.http.endpoint_threads import AnswerKeeper, in_endpoint_thread
from app.infra.http.json_bodies import received_body
from app.infra.http.services import Service
from modelkin.wire import JSON

__all__ = ["Once", "SecretOnce"]

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="a random text: for 24 hours the same request with the same key has no second "
        "effect, and gets the answer of the first one",
    ),
]


@dataclass
class _Kept(AnswerKeeper):
    """The answer of one request, by its key; encrypted where it is a secret."""

    service: IdempotencyService
    session: Writer
    tenant: Tenant
    key: str | None
    digest: bytes
    is_secret: bool = False

    def kept(self) -> Response | None:
        if self.key is None:
            return None
        answer = self.service.begin(self.session, self.tenant, self.key, self.digest)
        if answer is None:
            return None
        headers = {"Idempotency-Replayed": "true"}
        if answer.location is not None:
            headers["Location"] = answer.location
        return Response(answer.content, answer.status, headers, JSON)

    def keep(self, response: Response) -> None:
        if self.key is None:
            return
        location = response.headers.get("location")
        answer = Answer(response.status_code, location, bytes(response.body))
        self.service.keep(self.session, self.tenant, self.key, answer, is_secret=self.is_secret)


async def _digest(request: Request) -> bytes:
    url = request.url
    asked = f"{request.method} {url.path}?{url.query}\n".encode()
    return hashlib.sha256(asked + received_body(request)).digest()


Digest = Annotated[bytes, Depends(_digest)]


@in_endpoint_thread
def _once(
    service: Service[IdempotencyService],
    tenant: WritingTenant,
    session: Writing,
    digest: Digest,
    key: Key = None,
) -> AnswerKeeper:
    return _Kept(service, session, tenant, key, digest)


@in_endpoint_thread
def _secret_once(kept: Annotated[_Kept, Depends(_once)]) -> AnswerKeeper:
    return replace(kept, is_secret=True)


Once = Annotated[AnswerKeeper, Depends(_once)]
"""Makes a request with an idempotency key have one effect; the endpoint itself ignores it."""
SecretOnce = Annotated[AnswerKeeper, Depends(_secret_once)]
"""The same, where the answer has a secret."""
