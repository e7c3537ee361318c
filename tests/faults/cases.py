"""Requests that schemathesis draws from the OpenAPI document, and what it says of the answers."""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from modelkin import wire
from tests.faults.requests import BODIES, DOCUMENT, ENDLESS, Names

if TYPE_CHECKING:
    import schemathesis
    from schemathesis import GenerationMode, Response

    Case: TypeAlias = schemathesis.Case[Any]
    _Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]

__all__ = ["OPERATIONS", "Cases", "Send", "name_of", "require_declared", "sender"]

OPERATIONS: Final = sum(map(len, DOCUMENT["paths"].values())) - len(ENDLESS)
Send = Callable[["Case"], "Response"]


class Cases:
    """Draws cases from a seed: those that the schemas allow, and as many that they do not.

    Args:
        number: the seed of all that is drawn.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._draw = random.Random(number)
        self._operations = _operations()

    def drawn(self, each: int) -> list[Case]:
        """Cases of all operations, mixed.

        Args:
            each: how many of an operation; half of them, or of one each, break their schemas.
        """
        from schemathesis import GenerationMode

        found: list[Case] = []
        for number, operation in enumerate(self._operations.values()):
            broken = self._broken(operation, each // 2 or number % 2)
            found += self._of(operation, GenerationMode.POSITIVE, each - len(broken)) + broken
        self._draw.shuffle(found)
        return found

    def one(self, operation: str) -> Case:
        """A case of an operation, within its schema."""
        from schemathesis import GenerationMode

        return self._of(self._operations[operation], GenerationMode.POSITIVE, 1)[0]

    def _broken(self, operation: _Operation, count: int) -> list[Case]:
        from schemathesis import GenerationMode

        if _takes_any(operation.definition.raw):
            return []  # schemathesis would look for a long time, and find none
        return self._of(operation, GenerationMode.NEGATIVE, count)

    def _of(self, operation: _Operation, mode: GenerationMode, count: int) -> list[Case]:
        found: list[Case] = []
        if count == 0:
            return found

        # The first case of all is the simplest there is: one that is drawn comes after it.
        @seed(self._number)
        @settings(
            max_examples=count + 1,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def collect(case: Case) -> None:
            found.append(case)

        collect()
        return found[-count:]

    def name(self, case: Case, names: Names) -> None:
        """Put known names in most of the places that take one, and leave what is optional out of
        half the cases: any text there has the whole refused.
        """
        required = _required(case.operation.definition.raw)
        for place in (case.query, case.headers, case.body):
            if isinstance(place, MutableMapping) and self._draw.random() < 0.5:
                for name in place.keys() - required:
                    del place[name]
        for place, share in (case.path_parameters, 0.9), (case.query, 0.7), (case.body, 0.7):
            for name, known in names.items():
                if isinstance(place, dict) and name in place and self._draw.random() < share:
                    chosen = self._draw.choice(known)
                    place[name] = [chosen] if isinstance(place[name], list) else chosen


def _takes_any(described: dict[str, Any]) -> bool:
    """Nothing breaks its schema: it takes names of any text in its path, and in headers, alone."""
    text = {"type", "title", "description"}
    return "requestBody" not in described and all(
        each["in"] == "header" or (each["in"] == "path" and each["schema"].keys() <= text)
        for each in described.get("parameters", ())
    )


def _required(described: dict[str, Any]) -> set[str]:
    """The parameters and the fields of its body in JSON that an operation cannot do without."""
    content = described.get("requestBody", {}).get("content", {})
    schema = content.get(wire.JSON, {}).get("schema", {})
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    parameters = {each["name"] for each in described.get("parameters", ()) if each.get("required")}
    return parameters | set(schema.get("required", ()))


def sender(url: str, authorization: str | None) -> Send:
    """Send cases to a service, as the caller of a key or of none."""
    import requests

    session = requests.Session()
    session.trust_env = False
    headers = {"Authorization": authorization} if authorization else {}
    return lambda case: case.call(base_url=url, session=session, headers=headers)


def require_declared(case: Case, answer: Response | httpx.Response) -> None:
    """Fail where the document does not declare this status, type of content or body."""
    from schemathesis.specs.openapi import checks

    case.validate_response(
        answer,
        checks=[
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
        ],
    )


@cache
def _operations() -> dict[str, _Operation]:
    """The operations as schemathesis reads them: imported here, so that no other test waits."""
    import schemathesis
    from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig
    from schemathesis.core.result import Ok

    for kind, bodies in {**BODIES, wire.CELL: (), wire.FINGERPRINT: (), wire.NPY: ()}.items():
        drawn = st.sampled_from(bodies) | st.binary() if bodies else st.binary()
        schemathesis.openapi.media_type(kind, drawn)
    # Keys are the callers'.
    generation = GenerationConfig(with_security_parameters=False)
    projects = ProjectsConfig(default=ProjectConfig(generation=generation))
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config(projects=projects))
    found: dict[str, _Operation] = {}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        found[operation.definition.raw["operationId"]] = operation
    return {name: each for name, each in found.items() if name not in ENDLESS}


def name_of(case: Case) -> str:
    """The id of the operation that a case asks for."""
    return str(case.operation.definition.raw["operationId"])
