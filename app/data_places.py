"""The places of the service's data, as its settings name them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import make_url

__all__ = ["DataPlaces"]


class DataPlaces:
    """The folders and files of the data, and the bucket if there is one."""

    if TYPE_CHECKING:  # fields of the settings: as annotations here they would lose their order
        database_url: str
        blob_url: str | None
        blob_cache_dir: Path | None
        download_dir: Path | None
        sketch_cache_dir: Path | None

    @property
    def data_dir(self) -> Path:
        """The folder of the SQLite database; beside Postgres, ./modelkin-data."""
        url = make_url(self.database_url)
        if url.get_backend_name() != "sqlite" or url.database is None:
            return Path("modelkin-data").absolute()
        return Path(url.database).absolute().parent

    @property
    def encryption_key_file(self) -> Path | None:
        """The file of a generated key; None beside Postgres, which other machines share."""
        if make_url(self.database_url).get_backend_name() != "sqlite":
            return None
        return self.data_dir / "secret.key"

    @property
    def checkpoint_dir(self) -> Path:
        """The folder of unfinished downloads; databases may share it."""
        return _chosen(self.download_dir, self.data_dir / "downloads")

    @property
    def blob_bucket(self) -> str | None:
        """The URL of the bucket that holds the supports; None where a folder does."""
        url = self.blob_url
        return None if url is None or url.startswith("file:") else url

    @property
    def blob_dir(self) -> Path:
        """The folder of the supports; with a bucket, of those on this machine."""
        if self.blob_bucket is not None:
            return self.support_cache_dir
        if self.blob_url is not None:
            return Path(unquote(urlsplit(self.blob_url).path))
        return self.data_dir / "blobs"

    @property
    def support_cache_dir(self) -> Path:
        """The folder of the supports that this machine has fetched; databases may share it."""
        return _chosen(self.blob_cache_dir, self.data_dir / "fetched")

    @property
    def sketch_dir(self) -> Path:
        """The folder that holds the sketches of supports; databases may share it."""
        supports = self.blob_dir
        return _chosen(self.sketch_cache_dir, supports.with_name(f"{supports.name}-cache"))


def _chosen(folder: Path | None, default: Path) -> Path:
    return default if folder is None else folder.absolute()
