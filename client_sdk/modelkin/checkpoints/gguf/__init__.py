"""GGUF files as checkpoints: ``pip install 'modelkin[gguf]'``.

A file's tensors get the names, the shapes and the order that they have in Hugging Face's files, so
that a quantised model lies in the space of its original. The header is read by code of this
package, which trusts nothing in it; the package ``gguf`` has the values of blocks, and the names.
"""

from __future__ import annotations

from modelkin.checkpoints.gguf.choosing import GGUF_SUFFIX, choose_gguf, parts_of
from modelkin.checkpoints.gguf.header import MAX_HEADER_BYTES, holds_header
from modelkin.checkpoints.gguf.names import forms
from modelkin.checkpoints.gguf.opening import read_gguf

__all__ = [
    "GGUF_SUFFIX",
    "MAX_HEADER_BYTES",
    "choose_gguf",
    "forms",
    "holds_header",
    "parts_of",
    "read_gguf",
]
