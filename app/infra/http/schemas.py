"""Base classes of the API's JSON: strict requests, responses made of records, and problems."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "Problem",
    "RequestModel",
    "ResponseModel",
    "Text",
    "finite_numbers",
    "refuse_nul",
]


class RequestModel(BaseModel):
    """A request body: an integer is not ``true`` or ``5.0``, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class ResponseModel(BaseModel):
    """A response body, made of the attributes of a record."""

    model_config = ConfigDict(from_attributes=True)


class FieldProblem(BaseModel):
    field: str = Field(description="which field, `layout[3].shape`")
    message: str = Field(description="what is wrong with it, for people")


class Problem(BaseModel):
    """What every error answers, `application/problem+json` (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:modelkin:problem:space_not_found",
                    "title": "Not Found",
                    "status": 404,
                    "code": "space_not_found",
                    "detail": "there is no space 'digits'",
                    "request_id": "a8df58fb98dad03e",
                }
            ]
        }
    )

    type: str = Field(description="a URN that ends with the code")
    title: str = Field(description="the phrase of the status, `Not Found`")
    status: int = Field(description="the status of the answer")
    code: str = Field(description="stable, for programs")
    detail: str = Field(description="what is wrong, where, and what to do, for people")
    request_id: str = Field(description="stands in the service's log")
    errors: list[FieldProblem] | None = Field(None, description="of invalid input, by field")


def finite_numbers(value: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, yet ``1e400`` parses to one, which could never be answered."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            raise ValueError("a number is beyond what a double holds")
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            raise ValueError("an integer is beyond 64 bits")
    return value


def refuse_nul(value: str) -> str:
    """A text without NUL, which databases cannot store."""
    if "\0" in value:
        raise ValueError("NUL cannot be stored")
    return value


Text = Annotated[str, Field(max_length=2000), AfterValidator(refuse_nul)]
