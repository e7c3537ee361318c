"""The public path of :mod:`modelkin.federation.sharing`: ``from modelkin import sharing``."""

from modelkin.federation.sharing import *  # noqa: F403
from modelkin.federation.sharing import __all__ as __all__
