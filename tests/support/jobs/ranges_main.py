"""``python -m tests.support.jobs.ranges_main``: the worker, which reads small files by ranges."""

from __future__ import annotations

import sys

from app.hubs.ingestion.files import checkpoint_fetcher, ranged_files
from modelkin.checkpoints import one_pass
from workers.__main__ import main

__all__ = ["BLOCK", "WINDOW"]

BLOCK, WINDOW = 64 << 10, 512 << 10


def read_small_files_by_ranges() -> None:
    """Have a window that the checkpoints of tests do not fit into."""
    ranged_files.BLOCK_BYTES, ranged_files.WINDOW_BYTES = BLOCK, WINDOW  # type: ignore[misc]
    ranged_files.LOOK_BYTES = 1 << 10  # type: ignore[misc]
    checkpoint_fetcher.WHOLE_BYTES = WINDOW  # type: ignore[misc]
    one_pass.PART_SIZE = 10_000  # type: ignore[misc]


if __name__ == "__main__":
    read_small_files_by_ranges()
    sys.exit(main(sys.argv[1:]))
