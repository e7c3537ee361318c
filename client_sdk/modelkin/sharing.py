"""The public path of averages in shards: ``from modelkin import sharing``."""

from modelkin.federation import sharing as _sharing
from modelkin.federation.buckets import BucketMerge, BucketStore, FolderStore, Store
from modelkin.federation.sharing import *  # noqa: F403

__all__ = ["BucketMerge", "BucketStore", "FolderStore", "Store"]
__all__ += _sharing.__all__
