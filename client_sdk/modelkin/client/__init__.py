"""The HTTP client of the service.

``_protocol`` knows the API and does no I/O, ``_exchange`` decides what comes of a try; ``sync`` and
``async_`` send. It never computes supports, signatures or overlaps: that is ``modelkin.core``'s.
"""

from modelkin.client._async.client import AsyncClient
from modelkin.client._sync.client import Client
from modelkin.client._sync.listing import AsyncListing, Listing
from modelkin.client._transport.version_check import ModelkinVersionWarning

__all__ = ["AsyncClient", "AsyncListing", "Client", "Listing", "ModelkinVersionWarning"]
