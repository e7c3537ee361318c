"""The command ``doctor``: find faults of a set-up, from this machine to a space.

The command changes nothing: the file that tests the data folder is removed at once. The write
scope shows in how the service refuses to cancel a job that cannot exist.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from modelkin._diagnosis import Check
from modelkin._server_folder import operator_command
from modelkin._terminal_text import one_line
from modelkin._version import __version__
from modelkin.cli.local_service import local_checks
from modelkin.cli.options import add_service, usual_space
from modelkin.cli.output import Answer, quantity
from modelkin.cli.style import HEAD, Styled, paint
from modelkin.cli.texts import state_text
from modelkin.client import Client
from modelkin.client._protocol.calls.requests import get
from modelkin.client._sync.connection import Connection
from modelkin.client._transport.config import Config
from modelkin.client._transport.messages import Response
from modelkin.errors import ApiError, ConnectionFailed, InvalidParameter, ModelkinError
from modelkin.types.jobs import JobInfo
from modelkin.types.spaces import SpaceInfo

__all__ = ["doctor", "doctor_options"]

_NO_JOB: Final = "00000000-0000-7000-8000-000000000000"
_SOON: Final = timedelta(seconds=10)
"""The wait for a worker that says nothing."""
_LONG_QUEUED: Final = timedelta(minutes=1)
"""The longest time that a job waits where a worker is free."""
_MIN_FREE_BYTES: Final = 1 << 30
_TIMEOUT_S: Final = 10.0
_OK: Final = 200
_NOT_FOUND: Final = 404


def doctor_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    add_service(parser, space="inspect this space, too; else MODELKIN_SPACE", required=False)


def doctor(arguments: argparse.Namespace) -> Answer:
    """``modelkin doctor``: check each part of a set-up, and give a remedy for each fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a service of another version has a line of its own
        checks = list(_checks(arguments))
    failed = sum(check.state == "fail" for check in checks)
    doubtful = sum(check.state == "warn" for check in checks)
    total = f"{quantity(failed, 'failure')}, {quantity(doubtful, 'warning')}"
    text = "\n".join([*map(_line, checks), "", total if failed or doubtful else "all is well"])
    fields = {"ok": failed == 0, "checks": [asdict(check) for check in checks]}
    return Answer(text, fields, code=1 if failed else 0)


def _line(check: Check) -> str:
    state = state_text(check.state)
    mark = paint(state, state.style) if isinstance(state, Styled) else state
    space = " " * (4 - len(check.state))
    line = f"{mark}{space}  {paint(check.check.ljust(11), HEAD)}  {one_line(check.detail)}"
    return f"{line}\n{' ' * 19}to do: {one_line(check.remedy)}" if check.remedy else line


def _checks(arguments: argparse.Namespace) -> Iterator[Check]:
    yield _disk()
    try:
        config = Config.resolve(arguments.url, arguments.api_key, _TIMEOUT_S, 0)
    except InvalidParameter as error:
        yield Check("address", "fail", str(error), "correct MODELKIN_URL or MODELKIN_API_KEY")
        return
    yield _address(arguments, config)
    yield from local_checks(config.url)
    try:
        found = list(_service(config))
    except httpx.HTTPError:
        found = [_unreachable(arguments)]
    except ModelkinError as error:
        found = [Check("service", "fail", str(error), "correct MODELKIN_URL or --url")]
    yield from found
    if any(check.state == "fail" for check in found):
        return
    with Client(arguments.url, arguments.api_key, timeout=_TIMEOUT_S, retries=0) as client:
        key = _key(client, config)
        yield key
        if key.state == "fail":
            return
        yield _workers(client)
        yield from _space(client, arguments.space or usual_space())


def _disk() -> Check:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:,.1f} GB free in {folder}"
    if free >= _MIN_FREE_BYTES:
        return Check("disk", "ok", found)
    return Check("disk", "warn", found, "free some, or set TMPDIR to another folder")


def _address(arguments: argparse.Namespace, config: Config) -> Check:
    if arguments.url:
        origin = "--url"
    else:
        origin = "MODELKIN_URL" if os.environ.get("MODELKIN_URL") else "the default"
    found = f"{config.url}, from {origin}"
    if config.trust_env and config.url.startswith("http://") and "Authorization" in config.headers:
        remedy = "use https://, since everyone on the way can read the key"
        return Check("address", "warn", found, remedy)
    return Check("address", "ok", found)


def _service(config: Config) -> Iterator[Check]:
    """Check that a service answers and is ready, and compare its version."""
    with closing(Connection(config, None)) as connection:
        begin = time.perf_counter()
        alive = _ask(connection, "/livez")
        version = alive.headers.get("modelkin-version") or _version(alive)
        if version is None or alive.status == _NOT_FOUND:  # a wrong path
            yield _no_service(config, alive)
            return
        yield Check("service", "ok", f"it answers in {(time.perf_counter() - begin) * 1e3:.0f} ms")
        yield _skew(version)
        ready = _ask(connection, "/readyz")
    if ready.status == _OK:
        yield Check("ready", "ok", "its database and its indexes are there")
    else:
        detail = _detail(ready)
        remedy = "wait, or read the service's log if it stays so"
        yield Check("ready", "warn", detail, remedy)


def _ask(connection: Connection, path: str) -> Response:
    """The answer to a GET; raises the error of the transport."""
    outcome = connection.attempt(get(path))
    if isinstance(outcome, httpx.RequestError):
        raise outcome
    return outcome


def _no_service(config: Config, answer: Response) -> Check:
    """Report an answer that is no service's; the address without its path may be a service's."""
    found = (
        f"something answers at {config.url}/livez, with status {answer.status}, but no modelkin "
        f"service"
    )
    root = str(httpx.URL(config.url).copy_with(path="/", query=None)).rstrip("/")
    remedy = "correct MODELKIN_URL or --url"
    if config.url != root:
        with suppress(httpx.HTTPError, ModelkinError):
            with closing(Connection(replace(config, url=root), None)) as connection:
                other = _ask(connection, "/livez")
            if other.status == _OK and _version(other) is not None:
                remedy += f": one answers at {root}"
    return Check("service", "fail", found, remedy)


def _version(answer: Response) -> str | None:
    found = _json(answer)
    return str(found["version"]) if isinstance(found, dict) and "version" in found else None


def _detail(answer: Response) -> str:
    found = _json(answer)
    said = found.get("detail") if isinstance(found, dict) else None
    return f"status {answer.status}" if said is None else str(said)


def _json(answer: Response) -> Any:
    """The JSON of an answer; None for anything else."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _skew(theirs: str) -> Check:
    found = f"service {theirs}, this command {__version__}"
    if theirs.split(".")[:2] == __version__.split(".")[:2]:
        return Check("version", "ok", found)
    newest = ".".join(theirs.split(".")[:2])
    remedy = f"pip install 'modelkin=={newest}.*', or upgrade the service"
    return Check("version", "warn", found, remedy)


def _unreachable(arguments: argparse.Namespace) -> Check:
    """Report a connection error in the client's own words."""
    try:
        with Client(arguments.url, arguments.api_key, timeout=_TIMEOUT_S, retries=0) as client:
            next(iter(client.spaces.list()), None)
    except ConnectionFailed as error:
        what, _, remedy = str(error).partition(": ")
        return Check("service", "fail", what, remedy)
    except ModelkinError as error:
        return Check("service", "fail", str(error), "correct MODELKIN_URL")
    return Check("service", "fail", "it answers now and then", "try again")


def _key(client: Client, config: Config) -> Check:
    """Check that the key may read and write."""
    has_key = "Authorization" in config.headers
    try:
        next(iter(client.spaces.list()), None)
        scopes = ["read"]
    except ApiError as error:
        if error.status == 401:
            remedy = "make another key" if has_key else "set MODELKIN_API_KEY"
            remedy += f": `{operator_command('keys create')}` on the machine of the service"
            return Check("key", "fail", error.detail, remedy)
        if error.status != 403:
            return Check("key", "fail", str(error), "read the service's log")
        scopes = []
    try:
        client.jobs.cancel(_NO_JOB)
    except ApiError as error:
        if error.status != 403:
            scopes.append("write")
    if not has_key and len(scopes) == 2:
        return Check("key", "ok", "none, and the service asks for none")
    if not scopes:
        remedy = "ask for one with the scopes read and write"
        return Check("key", "fail", "a key that neither reads nor writes", remedy)
    found = f"a key to {' and '.join(scopes)}"
    if len(scopes) == 2:
        return Check("key", "ok", found)
    remedy = "ask for one with the scopes read and write, to push and to compare"
    return Check("key", "warn", found, remedy)


def _workers(client: Client) -> Check:
    """Check that a worker takes jobs: a job that waits long shows that none runs."""
    try:
        newest = next(filter(_is_due, client.jobs.list()), None)
        running = next(iter(client.jobs.list(state="running")), None)
        queued = list(filter(_is_due, client.jobs.list(state="queued")))
    except ApiError as error:
        return Check("workers", "warn", f"not known: {error.detail}", "ask with a key that reads")
    if newest is None:
        return Check("workers", "ok", "no job was started yet, so none waits")
    now = datetime.now(UTC)
    waited = max((now - _due_at(job) for job in queued), default=timedelta())
    waiting = f"{quantity(len(queued), 'job')} queued"
    if running is not None or waited < _SOON:
        return Check("workers", "ok", f"{waiting}; the newest {newest.state}")
    found = f"{waiting}, for {waited.total_seconds():,.0f} s, none runs"
    start = f"start a worker with `{operator_command('workers')}`"
    if waited > _LONG_QUEUED:
        return Check("workers", "fail", found, start)
    return Check("workers", "warn", found, f"ask again in a minute; if it still waits, {start}")


def _is_due(job: JobInfo) -> bool:
    """Whether a job has begun, or waits for nothing but a worker."""
    return job.state != "queued" or _due_at(job) <= datetime.now(UTC)


def _due_at(job: JobInfo) -> datetime:
    """Since when a queued job waits for a worker."""
    return max(job.created_at, job.not_before or job.created_at)


def _space(client: Client, name: str | None) -> Iterator[Check]:
    if name is None:
        remedy = "set MODELKIN_SPACE to save --space, and to have it inspected here"
        yield Check("space", "ok", f"none is named; {remedy}")
        return
    try:
        space = client.spaces.get(name)
    except ApiError as error:
        remedy = "correct MODELKIN_SPACE, or make it with `modelkin push --create`"
        yield Check("space", "fail", error.detail, remedy)
        return
    found = f"{name}: {quantity(space.models, 'model')}, {space.num_parameters:,} parameters"
    if space.models > 1:
        yield Check("space", "ok", found)
    else:
        yield Check("space", "warn", found, "store two models or more with `modelkin push`")
    if space.kind == "supports":
        yield _layout(space)
        yield _importance(space)


def _layout(space: SpaceInfo) -> Check:
    if space.layout is not None:
        return Check("layout", "ok", quantity(len(space.layout.tensors), "tensor"))
    remedy = "make a space with a layout, `modelkin spaces create NAME --like CHECKPOINT`"
    found = "none: no kappa, no similarity by tensor, and no check of the order of tensors"
    return Check("layout", "warn", found, remedy)


def _importance(space: SpaceInfo) -> Check:
    if space.importance.is_stated:
        return Check("importance", "ok", str(space.importance))
    remedy = "make a space that states it, `modelkin spaces create NAME --importance weight`"
    found = "not stated: supports of several kinds may be stored, and do not compare"
    return Check("importance", "warn", found, remedy)
