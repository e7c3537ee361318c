"""``python -m demo``: the command line and its exit codes.

The code is 0 if the demo was printed and, without ``--once``, serving ended by Ctrl-C. It is 1 for
a failure, with a line that names it, and 130 for Ctrl-C before the end of the output.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

DEFAULT_PORT = 8000


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Starts a service, trains 40 small models and shows which of them are kin.",
    )
    parser.add_argument(
        "--once", action="store_true", help="end after printing instead of serving on"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="where to serve, 0 for any free port (default: %(default)s)",
    )
    parser.add_argument(
        "--data", type=Path, help="folder to keep the store in (default: one that is removed)"
    )
    parser.add_argument(
        "--splits",
        type=int,
        default=1,
        metavar="N",
        help="measure N splits of the data instead, print means with their spread, and end",
    )
    parser.add_argument(
        "--sharing",
        action="store_true",
        help="show instead how donors average their models for a newcomer, and show none of them",
    )
    parser.add_argument(
        "--starting",
        action="store_true",
        help="show instead how newcomers with 20 samples find their cluster and its weights",
    )
    options = parser.parse_args(arguments)
    if options.sharing and options.starting:
        parser.error("--sharing and --starting are two stories: choose one")
    if (options.sharing or options.starting) and options.splits > 1:
        parser.error("--sharing and --starting have one split")
    if options.splits < 1:
        parser.error(f"--splits must be at least 1, not {options.splits}")
    if not 0 <= options.port <= 65535:
        parser.error(f"--port must be 0 to 65535, not {options.port}")
    return options


def run(options: argparse.Namespace) -> int:
    """Run on a service in ``--data``, or in a folder that is removed afterwards."""
    try:
        from demo import sharing, starting
        from demo.service import DemoError
        from demo.story import serve
        from modelkin.errors import ModelkinError
    except ImportError as error:
        return _report_failure(f"{error} (make demo installs what it needs)")
    act = sharing.run if options.sharing else starting.run if options.starting else None
    settings = starting.SETTINGS if options.starting else {}
    how = {"once": options.once, "splits": options.splits, "act": act, "settings": settings}
    try:
        if options.data is not None:
            return serve(options.data, options.port, **how)
        with tempfile.TemporaryDirectory(prefix="modelkin-demo-") as folder:
            return serve(Path(folder), options.port, **how)
    except (DemoError, ModelkinError, OSError) as error:
        return _report_failure(str(error))


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _report_failure(message: str) -> int:
    print(f"the demo failed: {' '.join(message.split())}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
