"""A bucket whose answers lie: an answer of the service is right, says `degraded`, or is a 503."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.infra.storage.object_blobs import ObjectBlobs
from app.infra.storage.object_store import open_store
from tests.support.app.harness import open_app
from tests.support.app.honesty import Answers, Stand, require_honest
from tests.support.servers.s3_proxy import Lie, S3Proxy, s3_proxy
from tests.support.servers.s3_server import S3

Headers = dict[str, str]
Answer = tuple[int, Headers, bytes]
HTML: Final = b"<!DOCTYPE html><title>Sign in</title>"


class Exchanged(Lie):
    """Asks for another key."""

    def __init__(self, keys: dict[str, str]) -> None:
        names = {keys[a].rpartition("/")[2]: keys[b].partition("/")[2] for a, b in ("bc", "cb")}
        self.places = names

    def path(self, path: str) -> str:
        for name, place in self.places.items():
            if name in path:
                return re.sub(r"\d+/[0-9a-f]{2}/" + name, place, path)
        return path


class RangeIgnored(Lie):
    """Answers every range with the whole."""

    def headers(self, headers: Headers) -> Headers:
        return {name: value for name, value in headers.items() if name.lower() != "range"}


class OtherRange(Lie):
    """Answers every range with the one behind it, and says that it is the one asked for."""

    def headers(self, headers: Headers) -> Headers:
        return {
            name: "bytes=8000-16255" if name.lower() == "range" else value
            for name, value in headers.items()
        }

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        said = {
            name: re.sub("8000-16255", "0-8255", value) if name == "content-range" else value
            for name, value in headers.items()
        }
        return status, said, content


class OtherTotal(Lie):
    """Says of each range that it is of a larger object."""

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        said = {
            name: re.sub("/.*", "/99999", value) if name == "content-range" else value
            for name, value in headers.items()
        }
        return status, said, content


class OneTag(Lie):
    """Gives all objects one ETag and one time."""

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        return status, {**headers, "etag": '"0"'} if "etag" in headers else headers, content


class Shorter(Lie):
    """States fewer bytes than it sends."""

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        return status, {**headers, "Content-Length": str(len(content) // 2)}, content


class Longer(Lie):
    """Sends zeros behind each object."""

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        return status, headers, content + bytes(64)


class Fixed(Lie):
    """Answers all requests alike."""

    def __init__(self, status: int, content: bytes) -> None:
        self.always = status, {"content-type": "text/html"}, content

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        return self.always


class Changed(Lie):
    """Flips a bit on the way."""

    def answer(self, status: int, headers: Headers, content: bytes) -> Answer:
        changed = content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]
        return status, headers, changed if len(content) > 9 else content


LIES: Final[dict[str, Any]] = {
    "another key": Exchanged,
    "the whole for a range": lambda _: RangeIgnored(),
    "another range": lambda _: OtherRange(),
    "another total": lambda _: OtherTotal(),
    "one ETag": lambda _: OneTag(),
    "a shorter length": lambda _: Shorter(),
    "more bytes": lambda _: Longer(),
    "a flipped bit": lambda _: Changed(),
    "200 with a page": lambda _: Fixed(200, HTML),
    "200 without a byte": lambda _: Fixed(200, b""),
    "204": lambda _: Fixed(204, b""),
    "206 with a page": lambda _: Fixed(206, HTML),
    "404 for all": lambda _: Fixed(404, b"<Error><Code>NoSuchKey</Code></Error>"),
    "no such bucket": lambda _: Fixed(404, b"<Error><Code>NoSuchBucket</Code></Error>"),
    "403": lambda _: Fixed(403, b"<Error><Code>AccessDenied</Code></Error>"),
}


@pytest.fixture(scope="module")
def told(
    s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stand, S3Proxy, Answers]]:
    """A service whose bucket is behind a proxy, and its right answers."""
    place = tmp_path_factory.mktemp("answers")
    with s3_proxy(s3.url) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.variables(proxy.url).items():
            patch.setenv(name, value)
        patch.setattr(
            "app.blob_stores.open_objects",
            lambda url, token: ObjectBlobs(open_store(url), token, pause=0),
        )
        settings: dict[str, Any] = {"blob_url": s3.bucket(), "blob_cache_dir": place / "copies"}
        with open_app(place, support_cache_bytes=0, **settings) as app:
            stand = Stand(app)
            yield stand, proxy, stand.ask()


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_answers_that_lie(told: tuple[Stand, S3Proxy, Answers], lie: str) -> None:
    """Of an answer that is not the row's content no number is called exact."""
    stand, proxy, right = told
    stand.empty_machine()
    proxy.lie = LIES[lie](stand.keys)
    try:
        require_honest(right, stand.ask())
    finally:
        proxy.lie = Lie()
    stand.empty_machine()
    answers = stand.ask()
    require_honest(right, answers)
    assert {200} == {answer.status_code for answer in answers.values()}
