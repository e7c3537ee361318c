"""Pages from templates: the context that all pages share, and the policy of each page.

A script or style runs only with the nonce of its page, so nothing that a client stored can. Jinja
escapes every value; data for scripts stand in ``<script type="application/json">``, which does not
run.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.infra.http.middleware.security_headers import POLICY, page_policy
from app.infra.http.requests.query_parameters import ignored_parameters
from app.infra.http.routes import Routes
from app.infra.http.services import services_of
from app.infra.programs import service_command
from app.kinship.lineage_summary import beside_figures
from app.models.catalog.records import ModelRecord
from app.tenancy.auth.records import Identity
from app.tenancy.auth.service import SCOPES, Authenticator
from app.ui import navigation
from app.ui.assets import PREFIX
from app.ui.queries import Term, misread, quote_value
from modelkin._validation import quote_model
from modelkin._version import __version__
from modelkin.core.fingerprints.chance import power_of_ten

__all__ = ["PageRoutes", "anatomy_path", "model_path", "render", "space_path"]


_MAX_SHORT: Final = 60
"""Characters of an attribute that a list shows."""


class PageRoute(APIRoute):
    """The route of a page: its errors are pages, too, whatever the request accepts.

    A ``HEAD`` is answered as a ``GET``; the server leaves out the body.
    """

    answers_pages = True

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        methods = set(options.pop("methods", None) or {"GET"})
        if "GET" in methods:
            methods.add("HEAD")
        super().__init__(path, endpoint, methods=methods, **options)


class PageRoutes(Routes):
    """The routes of pages."""

    def __init__(self) -> None:
        super().__init__(
            include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
        )


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    workers: bool = False,
    **context: Any,
) -> HTMLResponse:
    """Render the page of a template.

    Args:
        workers: whether its scripts may start workers, from the files of the pages.
        context: the values of the template, beside those of all pages (see :func:`_common`).
    """
    nonce = secrets.token_urlsafe(16)
    text = _environment.get_template(template).render({**_common(request, nonce), **context})
    policy = page_policy(
        script_src=f"'nonce-{nonce}'",
        style_src=f"'nonce-{nonce}'",
        img_src="'self' data: blob:",
        connect_src="'self'",
        form_action="'self'",
        **({"worker_src": "'self'"} if workers else {}),
    )
    said = {
        "Cache-Control": "no-cache",
        **(headers or {}),
        POLICY: policy,
        "Vary": "Cookie",
    }
    return HTMLResponse(text, status, said)


def _common(request: Request, nonce: str) -> dict[str, Any]:
    """The values of all pages: of the page itself, of the visitor, of the explorer."""
    identity: Identity | None = getattr(request.state, "identity", None)
    keys_required = _keys_required(request)
    scopes = identity.scopes if identity else frozenset(() if keys_required else SCOPES)
    return {
        "nonce": nonce,
        "assets": PREFIX,
        "version": __version__,
        "site": navigation.SITE,
        "path": request.url.path,
        "query": request.query_params,
        "ignored": ignored_parameters(request),
        "identity": identity,
        "keys_required": keys_required,
        "can_write": "write" in scopes,
        "can_admin": "admin" in scopes,
        "crumbs": (),
        "space": None,
        "tab": None,
    }


def _keys_required(request: Request) -> bool:
    return services_of(request)[Authenticator].keys_required


def _number(value: float) -> str:
    return f"{value:,}"


def _figure(value: float) -> str:
    """A similarity or another figure near 1; what rounds to zero has no sign."""
    return f"{value:z.3f}"


def _counted(count: int, word: str) -> str:
    """How many there are of something: 1 tensor, 1,200 tensors."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _compact(value: float) -> str:
    """A number in four characters or so: 1.2M."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or not share else f"{100 * share:.2g}%"


def _moment(value: datetime) -> str:
    """A time as machines read it, in the attribute of a ``<time>``."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment_in_words(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _value_text(value: Any) -> str:
    """A value of an attribute as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _attribute_query(key: str, value: Any) -> str:
    """The query for models with the same attribute."""
    return str(Term("attribute", f"{key}={_value_text(value)}"))


def _shown_attributes(model: ModelRecord, most: int) -> list[tuple[str, Any]]:
    """The first few attributes that are short: texts, numbers and truth values."""
    short = (
        (key, value)
        for key, value in model.attributes.items()
        if isinstance(value, str | int | float) and len(f"{key}{value}") <= _MAX_SHORT
    )
    return list(islice(short, most))


def _web_address(source: str) -> str | None:
    """The address at which a browser opens a source; None unless the source is a web address."""
    address = re.sub(r"^hf://", "https://huggingface.co/", source)
    if not re.fullmatch(r"https?://[^\s\"'<>\\]+", address):
        return None
    try:
        return address if urlsplit(address).hostname else None
    except ValueError:
        return None


def _address(path: str, query: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A path with a query, of which some values are changed; None and ``""`` leave a value out."""
    values = {**(query or {}), **changes}
    kept = {name: value for name, value in values.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(kept, doseq=True)}" if kept else path


def space_path(space: Any, *rest: str) -> str:
    """The path of a space's page, or of a page below it."""
    name = space if isinstance(space, str) else space.name
    return "/spaces/" + quote(name, safe="") + "".join(f"/{part}" for part in rest)


def model_path(space: Any, name: str) -> str:
    """The path of a model's page."""
    return f"{space_path(space)}/models/{quote_model(name)}"


def anatomy_path(name: str) -> str:
    """The path of the page of a model's anatomy."""
    return f"/anatomies/{quote_model(name)}"


_environment: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(
    number=_number,
    compact=_compact,
    figure=_figure,
    counted=_counted,
    percent=_percent,
    moment=_moment,
    moment_in_words=_moment_in_words,
    power_of_ten=power_of_ten,
    beside_figures=beside_figures,
    quoted=quote_model,
)
_environment.globals.update(
    address=_address,
    space_path=space_path,
    model_path=model_path,
    anatomy_path=anatomy_path,
    tabs_of=navigation.tabs_of,
    attribute_query=_attribute_query,
    shown_attributes=_shown_attributes,
    value_text=_value_text,
    web_address=_web_address,
    quote_value=quote_value,
    misread=misread,
    service_command=service_command,
)
