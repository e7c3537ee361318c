"""The words of the service for what pydantic finds wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from app.validation_texts import text_of


class Body(BaseModel):
    """A body of all kinds of fields."""

    whole: Annotated[int, Field(ge=1, le=9)] = 1
    number: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    flag: bool = False
    text: Annotated[str, Field(min_length=2, max_length=4)] = "ab"
    one_of: Literal["a", "b"] = "a"
    many: Annotated[list[int], Field(max_length=2)] = []
    inner: dict[str, int] = {}
    at: datetime | None = None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"whole": "abc"}, "it must be a whole number, not 'abc'"),
        ({"whole": 1.5}, "it must be a whole number, not 1.5"),
        ({"whole": 0}, "it must be at least 1, not 0"),
        ({"whole": 99}, "it must be at most 9, not 99"),
        ({"number": "x"}, "it must be a number, not 'x'"),
        ({"number": 1}, "it must be less than 1.0, not 1"),
        ({"number": float("nan")}, "it must be a finite number, not nan"),
        ({"flag": "perhaps"}, "it must be true or false, not 'perhaps'"),
        ({"text": 3}, "it must be a text, not 3"),
        ({"text": "abcde"}, "it must have at most 4 characters"),
        ({"text": "a"}, "it must have at least 2 characters, not 'a'"),
        ({"one_of": "c"}, "it must be 'a' or 'b', not 'c'"),
        ({"many": 5}, "it must be a list, not 5"),
        ({"many": [1, 2, 3]}, "it must have at most 2 entries"),
        ({"inner": [1]}, "it must be an object"),
        ({"at": "soon"}, "it must be a time, such as 2026-12-01T09:30:00Z, not 'soon'"),
    ],
)
def test_a_mistake_is_told_in_plain_words(given: dict[str, Any], said: str) -> None:
    """What the value must be, and what it is, if that is not long."""
    with pytest.raises(ValidationError) as caught:
        Body.model_validate(given)
    [error] = caught.value.errors()
    assert said == text_of(error)
    assert "Input should" not in text_of(error)


def test_what_is_missing() -> None:
    """Nothing is shown of the rest of the body."""
    error = {"type": "missing", "msg": "Field required", "input": {"name": "secret"}}
    assert "it is missing" == text_of(error)


def test_a_sentence_of_our_own_stays() -> None:
    """Validators of the service say what they want."""
    error = {"type": "value_error", "msg": "Value error, give a name", "input": ""}
    assert "give a name" == text_of(error)
