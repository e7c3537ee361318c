"""The HTTP client of the service. Supports, signatures and overlaps are computed elsewhere.

``_protocol`` has the requests and answers of the API, without I/O; ``_transport`` has everything
that both clients need to send them. ``_async`` is written by hand, and generates ``_sync``.
"""

from modelkin.client._async.client import AsyncClient
from modelkin.client._async.listing import AsyncListing
from modelkin.client._sync.client import Client
from modelkin.client._sync.listing import Listing
from modelkin.client._transport.version_check import ModelkinVersionWarning
from modelkin.client.split_client import SplitClient

__all__ = [
    "AsyncClient",
    "AsyncListing",
    "Client",
    "Listing",
    "ModelkinVersionWarning",
    "SplitClient",
]
