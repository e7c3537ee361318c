"""Listings as sequences: lengths, slices, and how many pages these read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from modelkin.client import AsyncListing, Listing
from modelkin.errors import ConnectionFailed, InvalidParameter
from modelkin.types.webhooks import DeliveryAttempt
from tests.sdk.test_printing import NOW

ROWS = [DeliveryAttempt(at=NOW, seconds=n / 8, detail=f"d{n}") for n in range(30)]


class Source:
    """Thirty rows, and how many were read."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self) -> Iterator[DeliveryAttempt]:
        for row in ROWS:
            self.read += 1
            yield row

    @property
    def listing(self) -> Listing[DeliveryAttempt]:
        """A new listing."""
        return Listing(self, DeliveryAttempt)


@pytest.mark.parametrize(
    ("index", "read"),
    [
        (slice(0, 5), 5),
        (slice(3, 9, 2), 9),
        (slice(-3, None), 30),
        (slice(None, None, -1), 30),
        (slice(28, 99), 30),
        (slice(0, 0), 0),
    ],
)
def test_slices_read_no_more_than_they_need(index: slice, read: int) -> None:
    """A slice is that of a list, and is a sequence that prints."""
    source = Source()
    found = source.listing[index]
    assert ROWS[index] == list(found)
    assert read == source.read
    assert repr(found).startswith(f"DeliveryAttempt, {len(ROWS[index])} items")


def test_one_row_is_read_alone() -> None:
    """A number reads up to that row, and a missing one is an IndexError."""
    source = Source()
    listing = source.listing
    assert (ROWS[4], 5) == (listing[4], source.read)
    assert (ROWS[2], 5) == (listing[2], source.read)
    assert ROWS[-1] == listing[-1]
    with pytest.raises(IndexError):
        listing[30]


def test_the_length_reads_all_once() -> None:
    """``list`` asks for the length, and no row is read twice for it."""
    source = Source()
    listing = source.listing
    assert (ROWS, 30) == (list(listing), source.read)
    assert (30, ROWS, 30) == (len(listing), list(listing), source.read)


def test_iterating_keeps_nothing_and_starts_again() -> None:
    """A loop reads page by page, and the next one begins at the first row."""
    source = Source()
    listing = source.listing
    assert ROWS[:2] == [row for _, row in zip(range(2), listing, strict=False)]
    assert 3 >= source.read
    assert ROWS[0] == next(iter(listing))
    assert bool(listing)
    read = source.read
    assert [30, 30] == [sum(1 for _ in listing) for _ in range(2)]
    assert 2 * 29 <= source.read - read


def test_a_listing_prints_its_first_rows() -> None:
    """It reads as many as it shows and one, and says that there are more."""
    source = Source()
    lines = repr(source.listing).splitlines()
    assert ("Listing of DeliveryAttempt", "… and more", 13) == (lines[0], lines[-1], source.read)
    whole = source.listing
    assert 30 == len(whole)
    assert repr(whole).splitlines()[-1] == "… and 18 more"


def test_a_listing_that_cannot_be_read_prints_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printing raises nothing."""
    monkeypatch.setenv("COLUMNS", "100")

    def refused() -> Iterator[DeliveryAttempt]:
        raise ConnectionFailed(why)
        yield

    why = "no service answers at http://kin.test, " * 4 + "so start one, or set MODELKIN_URL"
    listing = Listing(refused, DeliveryAttempt)
    assert "could not be read\nerror: no service answers" in repr(listing)
    assert why in repr(listing).replace("\n", " ")  # whole: the typo may be in its middle


async def _source() -> AsyncIterator[DeliveryAttempt]:
    for row in ROWS:
        yield row


def test_async_listings_are_read_into_sequences() -> None:
    """``read`` gives what ``len`` and slices cannot wait for."""
    listing = AsyncListing(_source, DeliveryAttempt)
    some = asyncio.run(listing.read(7))
    assert (7, ROWS[:7], ROWS[2:4]) == (len(some), list(some), list(some[2:4]))
    assert ROWS == list(asyncio.run(listing.read()))
    assert "await listing.read()" in repr(listing)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_that_reads_nothing_is_refused(limit: int) -> None:
    """The message says what a limit is."""
    with pytest.raises(InvalidParameter, match="limit must be 1 or more"):
        Source().listing.read(limit)
