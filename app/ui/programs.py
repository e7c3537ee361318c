"""The content of a page as a program requests it: for a shell and for Python."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request

from app.infra.http.services import services_of
from app.models.catalog.records import ModelRecord
from app.models.spaces.records import SpaceRecord
from app.tenancy.auth.service import Authenticator
from modelkin._validation import quote_model

__all__ = [
    "FirstSteps",
    "Programs",
    "first_steps",
    "of_anatomy",
    "of_clusterings",
    "of_job",
    "of_learngenes",
    "of_lineages",
    "of_model",
    "of_pair",
    "of_tensors",
]


@dataclass(frozen=True, slots=True)
class Programs:
    """A request to the API, for a shell and for Python."""

    curl: str
    python: str


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """The first lines for a service without models.

    Attributes:
        push: stores a checkpoint, from a shell.
        folder: stores all checkpoints of a folder, each in the space of its family.
        follow: follows the models of an owner on a hub, from a shell.
        python: asks which spaces there are, from Python.
        curl: asks the same from a shell.
    """

    push: str
    folder: str
    follow: str
    python: str
    curl: str


def first_steps(request: Request) -> FirstSteps:
    """How to begin with this very service."""
    url = shlex.quote(_base(request))
    return FirstSteps(
        push=f"modelkin push base.safetensors --model acme/base --space acme --create --url {url}",
        folder=f"modelkin push models --prefix acme/ --space auto --url {url}",
        follow=f"modelkin sources add huggingface --space acme --owner acme --hub-url "
        f"https://huggingface.co --url {url}",
        python=_python(
            request,
            "for space in client.spaces.list():",
            "    print(space.name, space.models)",
        ),
        curl=_curl(request, "/v1/spaces"),
    )


def of_model(request: Request, space: SpaceRecord, model: ModelRecord) -> Programs:
    """The neighbours of a model."""
    query = urlencode({"model": model.name, "k": 12})
    return Programs(
        curl=_curl(request, f"/v1/spaces/{space.name}/neighbors?{query}"),
        python=_python(
            request,
            f"model = client.models.get({space.name!r}, {model.name!r})",
            f"neighbors = client.neighbors({space.name!r}, {model.name!r}, k=12)",
            f"donors = client.donors({space.name!r}, {model.name!r})",
        ),
    )


def of_pair(request: Request, space: SpaceRecord, a: str, b: str) -> Programs:
    """The overlap of two models."""
    return Programs(
        curl=_curl(request, f"/v1/spaces/{space.name}/overlap?{urlencode({'a': a, 'b': b})}"),
        python=_python(request, f"overlap = client.overlap({space.name!r}, {a!r}, {b!r})"),
    )


def of_anatomy(request: Request, name: str) -> Programs:
    """The anatomy and the relatives of a model."""
    return Programs(
        curl=_curl(request, f"/v1/fingerprints/{quote_model(name)}/anatomy"),
        python=_python(
            request,
            f"anatomy = client.anatomy({name!r})",
            f"relatives = client.relatives({name!r}, k=12)",
        ),
    )


def of_tensors(request: Request, a: str, b: str) -> Programs:
    """Two models of any layouts, tensor by tensor."""
    query = urlencode({"with": b})
    return Programs(
        curl=_curl(request, f"/v1/fingerprints/{quote_model(a)}/tensors?{query}"),
        python=_python(
            request,
            f"a, b = (client.fingerprints.get(name) for name in ({a!r}, {b!r}))",
            f"anatomy = modelkin.anatomy(a, {{{b!r}: b}})",
        ),
    )


def of_job(request: Request, job: str) -> Programs:
    """The end of a job."""
    return Programs(
        curl=_curl(request, f"/v1/jobs/{job}"),
        python=_python(request, f"job = client.jobs.wait({job!r})"),
    )


def of_clusterings(request: Request, space: SpaceRecord) -> Programs:
    """A new clustering of a space."""
    path = f"/v1/spaces/{space.name}/clusterings"
    return Programs(
        curl=_curl(request, path) + " -H 'Content-Type: application/json' -d '{}'",
        python=_python(request, f"clustering = client.clusterings.create({space.name!r})"),
    )


def of_learngenes(request: Request, space: SpaceRecord) -> Programs:
    """The newest learngene of a cluster."""
    return Programs(
        curl=_curl(request, f"/v1/spaces/{space.name}/clusters/0/learngene"),
        python=_python(request, f"learngene = client.learngenes.get({space.name!r}, 0)"),
    )


def of_lineages(request: Request, space: SpaceRecord, verdicts: Sequence[str]) -> Programs:
    """The findings of some verdicts, or all, over the whole space."""
    query = urlencode([("verdict", verdict) for verdict in verdicts])
    wanted = f", verdict={list(verdicts)!r}" if verdicts else ""
    return Programs(
        curl=_curl(request, f"/v1/spaces/{space.name}/lineages?{query}".rstrip("?")),
        python=_python(
            request,
            f"for finding in client.lineages({space.name!r}{wanted}):",
            "    print(finding.model, finding.verdict, finding.summary)",
        ),
    )


def _curl(request: Request, path: str) -> str:
    key = '-H "Authorization: Bearer $MODELKIN_API_KEY" \\\n  ' if _needs_key(request) else ""
    return f"curl {key}{shlex.quote(_base(request) + path)}"


def _python(request: Request, *lines: str) -> str:
    """A program; the client reads its key from the environment."""
    body = "".join(f"\n    {line}" for line in lines)
    return f"import modelkin\n\nwith modelkin.Client({_base(request)!r}) as client:{body}"


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _needs_key(request: Request) -> bool:
    return services_of(request)[Authenticator].keys_required
