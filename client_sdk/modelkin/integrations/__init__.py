"""modelkin inside the training loops of other libraries: one module a library.

``huggingface`` and ``lightning`` hold callbacks that upload a support at each save; ``flower``
holds a client mod and a strategy that clusters clients by their supports, and ``nvflare`` a client
and a controller that do. A module imports its library and names the extra that installs it; this
package imports none of them. ``federation`` has what both engines share.
"""

import logging

from modelkin._terminal_text import one_line


def _printable(record: logging.LogRecord) -> bool:
    """Escape what moves a cursor: services and other clients wrote some of what is logged."""
    text = record.getMessage()
    if not text.isprintable():
        record.msg, record.args = one_line(text), ()
    return True


logging.getLogger("modelkin.integrations").addFilter(_printable)
