"""References to a file in a hub of its owner: at a commit or a version, which cannot move.

A branch or a tag may be another file tomorrow, so neither is taken. What the address cannot bind,
as the file of a server, the digest of the manifest does. Nothing here connects to anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import quote as percent_encode
from urllib.parse import urlencode, urlsplit

from modelkin.core.quoting import quote
from modelkin.errors import InvalidParameter

__all__ = [
    "HUGGING_FACE",
    "KINDS",
    "HttpsFile",
    "HubFile",
    "MlflowFile",
    "Reference",
    "reference_from_json",
    "reference_to_json",
]

_MAX_TEXT: Final = 1000
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REPO: Final = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_VERSION: Final = re.compile(r"[1-9]\d{0,17}", re.ASCII)
HUGGING_FACE: Final = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on a Hugging Face hub.

    Args:
        repo: ``"org/start"``.
        revision: a commit of the repository, all 40 hexadecimal digits.
        file: the path of the file in the repository.
        url: ``https://huggingface.co``, or that of a hub of one's own.

    Raises:
        InvalidParameter: a field is not of this form; ``revision`` is a branch or a tag.
    """

    kind: ClassVar[str] = "huggingface"

    repo: str
    revision: str
    file: str
    url: str = HUGGING_FACE

    def __post_init__(self) -> None:
        _check_server(self.url)
        parts = _text(self.repo, "repo").split("/")
        if not _REPO.fullmatch(self.repo) or any(not part.strip(".") for part in parts):
            raise _wrong("repo", f"{quote(self.repo)} is not a repository such as 'org/start'")
        if not isinstance(self.revision, str) or not _COMMIT.fullmatch(self.revision):
            raise _wrong(
                "revision",
                f"{quote(self.revision)} is not a commit: give all 40 hexadecimal digits of one, "
                f"in lower case, since branches and tags move",
            )
        _check_path(self.file, "file")

    @property
    def address(self) -> str:
        """The address of the file."""
        file = percent_encode(self.file, safe="/")
        return f"{self.url.rstrip('/')}/{self.repo}/resolve/{self.revision}/{file}"


@dataclass(frozen=True, slots=True)
class MlflowFile:
    """A file of a version of a model in an MLflow registry.

    Args:
        url: the address of the tracking server.
        model: a registered model.
        version: the number of the version; an alias or a stage moves, and is refused.
        path: where the file lies among the version's artifacts.

    Raises:
        InvalidParameter: a field is not of this form.
    """

    kind: ClassVar[str] = "mlflow"

    url: str
    model: str
    version: str
    path: str

    def __post_init__(self) -> None:
        _check_server(self.url)
        _text(self.model, "model")
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise _wrong(
                "version",
                f"{quote(self.version)} is not the number of a version, '3': aliases and stages "
                f"move",
            )
        _check_path(self.path, "path")

    @property
    def address(self) -> str:
        """The address of the file."""
        asked = urlencode({"name": self.model, "version": self.version, "path": self.path})
        return f"{self.url.rstrip('/')}/model-versions/get-artifact?{asked}"


@dataclass(frozen=True, slots=True)
class HttpsFile:
    """A file of a server, which its digest alone binds.

    Args:
        url: ``https://`` and all that follows; a fragment, or a user and password, are refused.

    Raises:
        InvalidParameter: another kind of URL.
    """

    kind: ClassVar[str] = "https"

    url: str

    def __post_init__(self) -> None:
        _check_url(self.url, ("https",), query=True)

    @property
    def address(self) -> str:
        """The address of the file."""
        return self.url


Reference: TypeAlias = HubFile | MlflowFile | HttpsFile

KINDS: Final[Mapping[str, type[HubFile | MlflowFile | HttpsFile]]] = {
    form.kind: form for form in (HubFile, MlflowFile, HttpsFile)
}
"""The forms of a reference, by the ``kind`` that its JSON names."""


def reference_from_json(body: Any) -> Reference:
    """The reference that an object with a ``kind`` describes.

    Raises:
        InvalidParameter: not an object, of another kind, or with other fields.
    """
    if not isinstance(body, Mapping):
        raise InvalidParameter("a reference is an object with a kind", field="reference")
    given = dict(body)
    kind = given.pop("kind", None)
    form = KINDS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise _wrong("kind", f"{quote(kind)} is not one of {', '.join(KINDS)}")
    known = {field.name for field in fields(form)}
    for name in given:
        if name not in known:
            raise _wrong(quote(name), f"a reference of kind {kind} has no such field")
    for name in sorted(known):
        if name not in given and (form is not HubFile or name != "url"):
            raise _wrong(name, f"a reference of kind {kind} needs it")
    return form(**given)


def reference_to_json(reference: Reference) -> dict[str, Any]:
    """The object that :func:`reference_from_json` reads."""
    return {"kind": reference.kind, **asdict(reference)}


def _check_server(url: Any) -> None:
    # The digest binds what a server sends, so a hub of a closed network may do without TLS.
    _check_url(url, ("https", "http"), query=False)


def _check_url(url: Any, schemes: tuple[str, ...], *, query: bool) -> None:
    text = _text(url, "url")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _wrong("url", "this is not a URL") from None
    # Neither message shows the URL: it may hold a password.
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise _wrong("url", "a reference is shown to all readers: no user, and no password")
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise _wrong("url", f"a reference begins with {' or '.join(f'{s}://' for s in schemes)}")
    if parts.fragment or "#" in text or (not query and "?" in text):
        raise _wrong("url", f"a reference has no {'fragment' if query else 'query or fragment'}")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise _wrong("url", "a URL is of printable ASCII characters: encode all others")


def _check_path(path: Any, field: str) -> None:
    text = _text(path, field)
    if any(part in {"", ".", ".."} for part in text.split("/")) or "\\" in text:
        raise _wrong(field, f"{quote(text)} is not a path of names joined by '/'")


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value or len(value) > _MAX_TEXT:
        raise _wrong(field, f"it must be a text of 1 to {_MAX_TEXT} characters")
    if not value.isprintable() or value != value.strip():
        raise _wrong(field, f"{quote(value)} has characters that do not print")
    return value


def _wrong(field: str, why: str) -> InvalidParameter:
    return InvalidParameter(f"reference.{field}: {why}", field=f"reference.{field}")
