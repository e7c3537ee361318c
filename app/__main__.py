"""``python -m app``: serve until told to stop."""

from __future__ import annotations

import logging
import resource
import sys

import uvicorn
from pydantic import ValidationError

from app.main import create_app
from app.settings import Settings

_GRACE = 20
"""Seconds that requests under way may take once the service is told to stop."""


def main() -> int:
    """Exit 0 after a clean stop, 1 where the service could not start, 2 for wrong settings."""
    try:
        settings = Settings.from_command_line(sys.argv[1:])
    except ValidationError as error:
        for entry in error.errors():
            name = "_".join(str(part) for part in entry["loc"])
            reason = entry["msg"].removeprefix("Value error, ")
            print(f"modelkin: MODELKIN_{name.upper()}: {reason}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    _raise_descriptor_limit()
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings),
            host=settings.host,
            port=settings.port,
            access_log=False,  # app.api.middleware writes one, with request ids
            log_config=None,
            timeout_graceful_shutdown=_GRACE,
        )
    )
    server.run()
    return 0 if server.started else 1


def _raise_descriptor_limit() -> None:
    """A mapped support holds a file descriptor, and a matrix maps a thousand of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
