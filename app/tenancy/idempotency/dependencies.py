"""``Once`` and ``SecretOnce``: parameters of endpoints whose requests may be sent again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from app.infra.db.database import Writer
from app.infra.http.answers import Answer, json_answer
from app.infra.http.requests.json_bodies import received_body
from app.infra.http.services import services_of
from app.tenancy.auth.dependencies import tenant_record
from app.tenancy.auth.records import Tenant
from app.tenancy.idempotency.records import Answer as KeptAnswer
from app.tenancy.idempotency.service import IdempotencyService
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


@dataclass(frozen=True)
class OneAnswer:
    """The answer of one request by its idempotency key: found, or kept in its transaction.

    Without a key no answer is found, and none is kept.
    """

    request: Request
    key: str | None
    is_secret: bool

    def find_answer(self, session: Writer) -> Response | None:
        """The answer that the key has; None if the endpoint is to make one.

        Raises:
            InvalidParameter: the key was used for another request.
        """
        if self.key is None:
            return None
        answer = self._service.begin(session, self._tenant, self.key, self._digest())
        if answer is None:
            return None
        headers = {"Idempotency-Replayed": "true"}
        if answer.location is not None:
            headers["Location"] = answer.location
        return Response(answer.content, answer.status, headers, JSON)

    def keep(self, session: Writer, made: Answer[Any]) -> Response:
        """Keep the answer of the endpoint, encrypted where it has a secret; return it."""
        response = json_answer(made.model, made.status or 200, made.headers)
        if self.key is not None:
            location = response.headers.get("location")
            answer = KeptAnswer(response.status_code, location, bytes(response.body))
            self._service.keep(session, self._tenant, self.key, answer, is_secret=self.is_secret)
        return response

    @property
    def _service(self) -> IdempotencyService:
        return services_of(self.request)[IdempotencyService]

    @property
    def _tenant(self) -> Tenant:
        return tenant_record(self.request)

    def _digest(self) -> bytes:
        url = self.request.url
        asked = f"{self.request.method} {url.path}?{url.query}\n".encode()
        return hashlib.sha256(asked + received_body(self.request)).digest()


async def _once(request: Request, key: Key = None) -> OneAnswer:
    return OneAnswer(request, key, is_secret=False)


async def _secret_once(request: Request, key: Key = None) -> OneAnswer:
    return OneAnswer(request, key, is_secret=True)


Once = Annotated[OneAnswer, Depends(_once)]
"""The one effect of a request with an idempotency key: see :class:`OneAnswer`."""
SecretOnce = Annotated[OneAnswer, Depends(_secret_once)]
"""The same as :data:`Once`, for an answer with a secret."""
