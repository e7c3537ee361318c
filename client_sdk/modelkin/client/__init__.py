"""The HTTP client of the service.

``_protocol`` knows the API and does no I/O, ``_exchange`` decides what comes of a try; ``sync`` and
``async_`` send. It never computes supports, signatures or overlaps: that is ``modelkin.core``'s.
"""

from modelkin.client._listings import AsyncListing, Listing
from modelkin.client._versions import ModelkinVersionWarning
from modelkin.client.async_ import AsyncClient
from modelkin.client.sync import Client

__all__ = ["AsyncClient", "AsyncListing", "Client", "Listing", "ModelkinVersionWarning"]
