"""Requests that schemathesis draws from the OpenAPI document, and what it says of the answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from modelkin import wire
from tests.faults.requests import BODIES, DOCUMENT, Names

if TYPE_CHECKING:
    import schemathesis
    from schemathesis import GenerationMode, Response

    Case: TypeAlias = schemathesis.Case[Any]
    _Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]

__all__ = ["OPERATIONS", "Cases", "Send", "name_of", "require_declared", "sender"]

_ENDLESS: Final = frozenset({"follow_job", "follow_merge"})
"""They answer for as long as something runs."""
OPERATIONS: Final = sum(map(len, DOCUMENT["paths"].values())) - len(_ENDLESS)
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
            each: how many of an operation; where there are several, half break their schemas.
        """
        from schemathesis import GenerationMode

        found: list[Case] = []
        for operation in self._operations:
            broken = self._broken(operation, each // 2)
            found += self._of(operation, GenerationMode.POSITIVE, each - len(broken)) + broken
        self._draw.shuffle(found)
        return found

    def _broken(self, operation: _Operation, count: int) -> list[Case]:
        from schemathesis import GenerationMode

        try:
            return self._of(operation, GenerationMode.NEGATIVE, count)
        except Unsatisfiable:  # it takes names in its path alone, and any text is one
            return []

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
        """Put known names in most of the places that take one."""
        for place, share in (case.path_parameters, 0.9), (case.query, 0.7), (case.body, 0.7):
            for name, known in names.items():
                if isinstance(place, dict) and name in place and self._draw.random() < share:
                    chosen = self._draw.choice(known)
                    place[name] = [chosen] if isinstance(place[name], list) else chosen


def sender(url: str, authorization: str | None) -> Send:
    """Send cases to a service, as the caller of a key or of none."""
    import requests

    session = requests.Session()
    session.trust_env = False
    headers = {"Authorization": authorization} if authorization else {}
    return lambda case: case.call(base_url=url, session=session, headers=headers)


def require_declared(case: Case, answer: Response) -> None:
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


def _operations() -> list[_Operation]:
    """The operations as schemathesis reads them: imported here, so that no other test waits."""
    import schemathesis
    from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig
    from schemathesis.core.result import Ok

    for kind, bodies in {**BODIES, wire.CELL: (), wire.NPY: ()}.items():
        drawn = st.sampled_from(bodies) | st.binary() if bodies else st.binary()
        schemathesis.openapi.media_type(kind, drawn)
    # Keys are the callers'.
    generation = GenerationConfig(with_security_parameters=False)
    projects = ProjectsConfig(default=ProjectConfig(generation=generation))
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config(projects=projects))
    found: list[_Operation] = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        found.append(result.ok())
    return [each for each in found if _name(each) not in _ENDLESS]


def _name(operation: _Operation) -> str:
    return str(operation.definition.raw["operationId"])


def name_of(case: Case) -> str:
    """The id of the operation that a case asks for."""
    return _name(case.operation)
