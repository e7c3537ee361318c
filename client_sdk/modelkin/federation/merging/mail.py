"""``Mail``: what a party asks of the carrier of its merge."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

__all__ = ["Flow", "Mail"]

T = TypeVar("T")

Flow: TypeAlias = Generator[Any, Any, T]
"""Questions to a carrier in sequence: each answer is sent in, and the last step returns."""


class Mail(Protocol):
    """The questions of one party of one merge, which its flows yield and its carrier answers.

    An address is attempt, shard and piece. What was stored once stays: the same again changes
    nothing.
    """

    def get(self) -> Any:
        """The :class:`Merge` as it is now."""

    def join(self, party: str, public_key: bytes, token: str, fields: Mapping[str, Any]) -> Any:
        """Join. The same key and token may join again."""

    def put_cell(self, member: str, token: str, address: tuple[int, int, int], data: bytes) -> Any:
        """Send a sealed cell; all of an attempt, piece by piece and shard by shard."""

    def get_cell(self, member: str, token: str, address: tuple[int, int, int]) -> Any:
        """The bytes of a member's cell, for the aggregator of its shard; None if it is lost."""

    def judge(
        self, token: str, attempt: int, members: Mapping[str, str], failed: str | None
    ) -> Any:
        """Report that all cells are good, or the bad ones, or that the cells do not combine."""

    def put_result(self, token: str, shard: int, piece: int, data: bytes) -> Any:
        """Send a sealed result; all of an aggregator's shards, shard by shard."""

    def get_result(self, token: str, shard: int, piece: int) -> Any:
        """The bytes of a result of a merge that is done."""
