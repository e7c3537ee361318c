"""The map from model ids to rows, compared with a dict of the same entries."""

from __future__ import annotations

import numpy as np
import pytest

from app.models.index.rows import BYTES_PER_ROW, RowsById


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_a_dict(seed: int) -> None:
    """After any additions, replacements and removals, the living row of each model is found."""
    random = np.random.default_rng(seed)
    rows, ids, alive = RowsById(), np.empty(0, np.int64), np.empty(0, np.bool_)
    row_of: dict[int, int] = {}
    for _ in range(40):
        page = random.choice(6000, int(random.integers(1, 300)), replace=False)
        alive[rows.find(page)] = False
        rows.append(ids.size, page.tolist())
        row_of |= {int(model): ids.size + i for i, model in enumerate(page)}
        ids, alive = np.append(ids, page), np.append(alive, np.ones(page.size, np.bool_))
        gone = random.choice(6000, 20, replace=False)
        alive[rows.find(gone)] = False
        for model in gone.tolist():
            row_of.pop(model, None)
        rows.consolidate(ids, alive)
        found = rows.find(np.arange(6000))
        living = found[alive[found]]
        assert row_of == dict(zip(ids[living].tolist(), living.tolist(), strict=True))


def test_ordered_rows_stay_what_they_were() -> None:
    """A reader can keep using the ordered rows: they are replaced and never written."""
    rows, ids = RowsById(), np.arange(1000)
    rows.append(0, ids.tolist())
    rows.consolidate(ids, np.ones(1000, np.bool_))
    held = rows.ordered
    more = np.arange(3000)
    rows.append(1000, more[1000:].tolist())
    rows.consolidate(more, np.ones(3000, np.bool_))
    assert (1000, 1000, 3000) == (held.end, held.ids.size, rows.ordered.end)
    assert [5, 999] == held.find(np.array([5, 999, 1000, 7000])).tolist()


def test_a_row_takes_the_stated_bytes() -> None:
    """The ordered rows take only their arrays, and at most a sixteenth of all rows is in a dict."""
    rows, n = RowsById(), 0
    for page in np.array_split(np.arange(50_000), 100):
        rows.append(n, page.tolist())
        n += page.size
        rows.consolidate(np.arange(n), np.ones(n, np.bool_))
        assert n - rows.ordered.end <= max(64, n // 16)
        assert rows.ordered.ids.nbytes + rows.ordered.rows.nbytes <= n * BYTES_PER_ROW
