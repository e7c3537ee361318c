"""/v1/spaces/{space}/batch: many models in one request, a line each, and a line of answer for each.

Owns the lines: how they are cut, read strictly and answered. Everything is read before anything is
answered, for the stack cannot stream both ways at once; so a batch has an end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError
from pydantic_core import to_json

from app.api.auth import AUTHENTICATED
from app.api.bodies import media_type_of, parse_strictly, read_body
from app.api.deps import Handle, Reading, WritableSpace
from app.api.errors import described, fields_of
from app.api.payloads import SIGNATURE_SCHEMA, max_indices
from app.api.schemas import BatchLineIn
from app.services.batch import Entry, Refused, Result
from app.services.ingest import Stored
from app.settings import Settings
from modelkin import wire
from modelkin.core.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidParameter,
    InvalidSupport,
    ModelkinError,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from modelkin.names import check_model_name, check_tags

__all__ = ["JSONL", "MAX_LINES", "router"]

JSONL: Final = "application/jsonl"
MAX_LINES: Final = 10_000

_ENCODED = (wire.SUPPORT, wire.ROARING, wire.RAW)
"""The media types of a support in base64; indices as JSON would be text within text."""
