"""Merges through a bucket alone: parties that reach no service, and no other party.

A bucket gets and puts, and opens no cell. One party leads: it writes down who takes part and when a
state ends, as the hub's service does. docs/decisions/0016-merges-in-a-bucket.md says why, and what
anyone who may write to the bucket can do.
"""

from __future__ import annotations

from modelkin.federation.buckets.merge import BucketMerge
from modelkin.federation.buckets.stores import BucketStore, FolderStore, Store

__all__ = ["BucketMerge", "BucketStore", "FolderStore", "Store"]
