"""The HTTP client of the service.

``_protocol`` knows the API and does no I/O, ``sync`` sends. It never computes supports, signatures
or overlaps: that is ``modelkin.core``'s.
"""

from modelkin.client.sync import Client

__all__ = ["Client"]
