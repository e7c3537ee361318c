"""Names of bases as publishers write them: names, pinned revisions, addresses of web pages, URIs.

A reference only says which model to ask the hub for. The hub's answer has the model's own name.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from app.infra.errors import HubNotFound

__all__ = ["huggingface_reference", "mlflow_reference"]

_PUBLIC_HOSTS: Final = frozenset({"huggingface.co", "hf.co"})
"""Hosts of addresses in cards, whose models mirrors serve, too."""
_BEFORE_REVISION: Final = frozenset({"tree", "blob", "resolve", "raw", "commit", "commits"})
"""Parts of a page's path that stand between a model and a revision."""
_NO_MODELS: Final = frozenset({"datasets", "spaces"})
"""Parts of a page's path before repositories that are no models."""
_FILES: Final = "hf://"
"""The beginning of the address of a file, as fsspec and its users write it."""
_MAIN: Final = "main"
_SSH: Final = "git@hf.co:"
_CLONED: Final = ".git"
"""The end of a repository's address where it is cloned; no name on the Hub ends so."""
_REFS: Final = "refs"
"""The beginning of revisions of three parts, such as those of a pull request."""
_URI: Final = re.compile(r"models:/+([^/@]+)(?:/([^/]+)|@(.+))?/?")
"""MLflow's URIs: ``models:/name/version`` and ``models:/name@alias``."""
_LOGGED: Final = re.compile(r"m-[0-9a-f]{8,}")
"""The id of a logged model, which may be no version of a registered one."""
_NAME: Final = re.compile(r"(.+?)(?:/(\d+)|@([^@/]+))?")
_PAGE: Final = re.compile(r"/?models/([^/]+)(?:/versions/(\d+))?/?")
"""The fragment of a page of MLflow."""
_LATEST: Final = "latest"


def huggingface_reference(text: str, base: str) -> tuple[str, str | None]:
    """Read ``org/name``, ``org/name@revision``, or the address of a page or file of the Hub.

    Args:
        text: the name of a base as a card has it.
        base: the address of the hub.

    Returns:
        The name, and the pinned revision. The branch ``main`` pins nothing.

    Raises:
        HubNotFound: it is an address of another place, or of no model.
    """
    written = text.strip().removeprefix(_SSH)
    path = _path(written, base)
    if path is None:
        name, pin = _split(written)
        name = name.rstrip("/").removesuffix(_CLONED) or name
        return name, None if pin == _MAIN else pin
    parts = [part for part in path.split("/") if part]
    for skipped in ("api", "models"):
        if parts[:1] == [skipped]:
            del parts[:1]
    if not _NO_MODELS.isdisjoint(parts[:1]):
        raise HubNotFound(f"{written[:200]!a} is the address of no model")
    at = 1 if _BEFORE_REVISION.intersection(parts[1:2]) else 2
    name, pin = _split("/".join(parts[:at]))
    if _BEFORE_REVISION.intersection(parts[at : at + 1]):
        behind = parts[at + 1 :]
        pin = "/".join(behind[: 3 if behind[:1] == [_REFS] else 1])
    return name.removesuffix(_CLONED), None if pin in {"", _MAIN} else pin


def mlflow_reference(text: str, base: str) -> tuple[str, str | None]:
    """Read ``name``, ``name@version``, ``name@alias``, ``name/version``, or a URI of MLflow.

    Args:
        text: the name of a base as a tag has it.
        base: the address of the server, of whose pages the addresses are read, too.

    Returns:
        The name of the registered model, and its version or alias.

    Raises:
        HubNotFound: it is an address of another place, or of a logged model.
    """
    written = text.strip()
    if (found := _URI.fullmatch(written)) is not None:
        if _LOGGED.fullmatch(found[1]):
            raise HubNotFound(
                f"{written!a} is a logged model, and bases are registered models: name the "
                f"version that was registered of it, name@version"
            )
        name, pin = unquote(found[1]), found[2] or found[3]
        return name, None if pin == _LATEST else pin
    fragment = urlsplit(written).fragment if written.startswith(f"{base}/#") else ""
    if (found := _PAGE.fullmatch(fragment.partition("?")[0])) is not None:
        return unquote(found[1]), found[2]
    if "://" in written:
        raise _elsewhere(written, base)
    found = _NAME.fullmatch(written)
    return (written, None) if found is None else (found[1], found[2] or found[3])


def _path(text: str, base: str) -> str | None:
    """The path of an address of this hub; None for a text that is no address."""
    if text.startswith(f"{base}/"):
        return unquote(text.removeprefix(base))
    if text.startswith(_FILES):
        return text.removeprefix(_FILES)
    hosts = {*_PUBLIC_HOSTS, urlsplit(base).netloc}
    host, slash, _ = text.partition("/")
    if slash and host.lower().removeprefix("www.") in hosts:
        text = f"https://{text}"
    if "://" not in text:
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _elsewhere(text, base) from None
    if parts.scheme not in {"http", "https"} or (
        parts.netloc.lower().removeprefix("www.") not in hosts
    ):
        raise _elsewhere(text, base)
    return unquote(parts.path)


def _split(text: str) -> tuple[str, str | None]:
    """The name and the revision of ``name@revision``."""
    name, _, pin = text.rpartition("@")
    return (name, pin or None) if name else (text, None)


def _elsewhere(text: str, base: str) -> HubNotFound:
    return HubNotFound(
        f"{text[:200]!a} is an address of another place than {urlsplit(base).netloc}: name the "
        f"base as it is called there"
    )
