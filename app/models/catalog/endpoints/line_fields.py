"""The fields of a line of a batch: parsed and validated by whichever process reads the line."""

from __future__ import annotations

from pydantic import ValidationError

from app.infra.http.problems import fields_of
from app.infra.http.requests.json_reading import parse_strictly
from app.models.catalog.schemas import BatchLineIn
from modelkin._validation import check_model_name, check_tags
from modelkin.errors import InvalidParameter, ModelkinError

__all__ = ["read_fields"]


def read_fields(line: bytes) -> tuple[str | None, BatchLineIn | ModelkinError]:
    """Return the fields of a line, or its error; and the name of its model, if it has one."""
    model: str | None = None
    try:
        document = parse_strictly(line)
        if not isinstance(document, dict):
            raise InvalidParameter("the line is not a JSON object")
        model = check_model_name(document.get("model"))
        fields = BatchLineIn.model_validate(document)
        tags = None if fields.tags is None else check_tags(fields.tags)
        if fields.base_model is not None:
            check_model_name(fields.base_model, field="base_model")
        return model, fields.model_copy(update={"model": model, "tags": tags})
    except ValidationError as error:
        first = fields_of(error.errors())[0]
        problem = f"{first['field']}: {first['message']}"
        return model, InvalidParameter(problem, field=first["field"])
    except ModelkinError as error:
        return model, error
