"""``Store``: the little that a merge asks of a bucket or a shared folder; each object once."""

from __future__ import annotations

import os
import re
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from modelkin.errors import ConnectionFailed, InvalidParameter, MissingExtra

__all__ = ["BucketStore", "FolderStore", "Store"]

_NO_BUCKET: Final = re.compile("NoSuchBucket|ContainerNotFound")
_NO_CONDITIONS: Final = re.compile("501 Not Implemented|NotImplemented")


class Store(Protocol):
    """Objects by their keys.

    No listing and no condition is asked for, and no order of writes. An object may show late.
    """

    def get(self, key: str, most: int) -> bytes | None:
        """The object, or as many of its first bytes; None if there is none.

        Raises:
            ConnectionFailed: the store does not answer.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store an object; where there is one already, either may stay.

        Raises:
            ConnectionFailed: the store does not answer, and may have stored it.
        """


class FolderStore:
    """A folder that all parties see, such as a shared drive.

    Args:
        path: the folder, which must exist: a drive that is not mounted is away.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path)

    def __str__(self) -> str:
        return str(self._root)

    def get(self, key: str, most: int) -> bytes | None:
        try:
            with (self._root / key).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            self._require_root()
            return None
        except OSError as error:
            raise ConnectionFailed(f"{self._root / key} cannot be read: {error}") from error

    def put(self, key: str, data: bytes) -> None:
        self._require_root()
        path = self._root / key
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                return
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ConnectionFailed(f"{path} cannot be written: {error}") from error

    def _require_root(self) -> None:
        if not self._root.is_dir():
            raise ConnectionFailed(f"the folder {self._root} is not there")


class BucketStore:
    """A bucket of S3, Google Cloud Storage, Azure, or of a store with such an API.

        BucketStore("s3://bucket/merges")

    It takes the credentials that the store's own tools read from the environment, with the rights
    to get, put and list: without the last one S3 refuses, where there is no such object.

    Args:
        url: the bucket's, with a prefix; ``s3:``, ``gs:`` or ``az:``.

    Raises:
        MissingExtra: obstore is not installed.
        InvalidParameter: the URL, or a variable of the environment, is wrong.
    """

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError
        except ModuleNotFoundError as error:
            raise MissingExtra("obstore", "buckets") from error
        self._url, self._obstore = url, obstore
        self._mode: Literal["create", "overwrite"] = "create"
        self._taken, self._failures = AlreadyExistsError, (BaseError, OSError)
        try:
            self._store: Any = obstore.store.from_url(
                url,
                client_options={"timeout": timedelta(minutes=5), "allow_http": True},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
            )
        except (BaseError, ValueError) as error:
            raise InvalidParameter(f"{url} cannot be used: {error}", field="url") from error

    def __str__(self) -> str:
        return self._url

    def get(self, key: str, most: int) -> bytes | None:
        try:
            found = self._obstore.get(self._store, key)
            if found.meta["size"] > most:
                return bytes(self._obstore.get_range(self._store, key, start=0, length=most))
            return bytes(found.bytes())
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise self._failed(key, error) from error
            return None
        except self._failures as error:
            raise self._failed(key, error) from error

    def put(self, key: str, data: bytes) -> None:
        try:
            self._obstore.put(self._store, key, data, mode=self._mode, use_multipart=False)
        except self._taken:
            return
        except self._failures as error:
            if self._mode == "overwrite" or not _NO_CONDITIONS.search(str(error)):
                raise self._failed(key, error) from error
            self._mode = "overwrite"  # a store without If-None-Match: the protocol needs none
            self.put(key, data)

    def _failed(self, key: str, error: Exception) -> ConnectionFailed:
        why = re.split(r"\n|<\?xml", str(error), maxsplit=1)[0]
        return ConnectionFailed(f"{self._url}: {key} cannot be read or written now: {why}")
