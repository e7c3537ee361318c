"""What docs/flower.md says of Flower's requirements, and of the environment for its engines."""

from __future__ import annotations

import re
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.soak.federations.flower_engines import FLOWER, REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2]


def required_by_flower() -> dict[str, Requirement]:
    """Without extras."""
    found = [Requirement(each) for each in requires("flwr") or []]
    return {each.name: each for each in found if "extra" not in str(each.marker)}


@pytest.mark.parametrize("name", ["fastapi", "uvicorn"])
def test_flower_requires_older_packages_than_the_service(name: str) -> None:
    """The page says which; once this fails, one environment is enough, and the page simpler."""
    pins = re.search(rf"^{name}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pins is not None
    specifier = required_by_flower()[name].specifier
    assert pins[1] not in specifier
    below = next(each for each in specifier if each.operator == "<")
    page = (ROOT / "docs" / "flower.md").read_text()
    assert f"`{name}<{below.version.removesuffix('.0')}`" in page


def test_the_engines_get_all_that_flower_requires() -> None:
    """Of versions that it allows; but for uv, which installs apps' dependencies as they run."""
    given = {each.name: each for each in map(Requirement, REQUIREMENTS)}
    assert {"uv"} == required_by_flower().keys() - given.keys()
    for name in ("fastapi", "uvicorn", "starlette"):
        ours, theirs = given[name].specifier, required_by_flower()[name].specifier
        upper = {str(each) for each in theirs if each.operator == "<"}
        assert {each.removesuffix(".0") for each in upper} == {
            str(each) for each in ours if each.operator == "<"
        }


def test_the_engines_version_is_the_one_that_tests_import() -> None:
    """The Makefile installs the same one, without its requirements."""
    assert FLOWER == (f"flwr=={version('flwr')}",)
    assert f"\nFLOWER := flwr=={version('flwr')}\n" in (ROOT / "Makefile").read_text()
    assert f"--no-deps flwr=={version('flwr')}`" in (ROOT / "docs" / "flower.md").read_text()
