"""Wheels and sdists of a release: their metadata, and what an index shows of them."""

from __future__ import annotations

import importlib.util
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from modelkin._version import __version__
from tests.support.app import recorded_statements

ROOT = Path(__file__).parents[2]
NAMES = ("modelkin", "modelkin_service")
URLS = {
    "Homepage, https://forge.example/team/modelkin",
    "Documentation, https://forge.example/team/modelkin/tree/main/docs",
    "Source, https://forge.example/team/modelkin",
    "Changelog, https://forge.example/team/modelkin/blob/main/CHANGELOG.md",
    "Issues, https://forge.example/team/modelkin/issues",
}


def of_wheel(path: Path) -> Message:
    """The metadata in a wheel."""
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def of_sdist(path: Path) -> Message:
    """The metadata in an sdist."""
    with tarfile.open(path) as archive:
        found = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert found is not None
        return message_from_bytes(found.read())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_of_an_sdist_has_the_same_metadata(distributions: Path, name: str) -> None:
    """Both say name, version, addresses and a description, though the wheel is built later."""
    sdist = of_sdist(distributions / f"{name}-{__version__}.tar.gz")
    wheel = of_wheel(distributions / f"{name}-{__version__}-py3-none-any.whl")
    for metadata in (sdist, wheel):
        assert name == metadata["Name"].replace("-", "_")
        assert __version__ == metadata["Version"]
        assert set(metadata.get_all("Project-URL", [])) == URLS
        assert "text/markdown" == metadata["Description-Content-Type"]
        assert "pip install" in metadata.get_payload()


@pytest.mark.parametrize("hook", ["hatch_build.py", "client_sdk/hatch_build.py"])
def test_no_address_is_invented(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    """A build without the variable names no address, and one without https:// fails."""
    monkeypatch.delenv("MODELKIN_PROJECT_URL", raising=False)
    assert {} == urls(ROOT / hook)
    monkeypatch.setenv("MODELKIN_PROJECT_URL", "forge.example/modelkin")
    with pytest.raises(ValueError, match="has to begin with https://"):
        urls(ROOT / hook)


def urls(hook: Path) -> dict[str, str]:
    """What a metadata hook makes of the environment."""
    spec = importlib.util.spec_from_file_location("hatch_build", hook)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata: dict[str, Any] = {}
    module.ProjectUrls(str(hook.parent), {}).update(metadata)
    found: dict[str, str] = metadata["urls"]
    return found


def test_a_release_is_made_by_commands_that_are_tested(release: list[list[str]]) -> None:
    """The page builds both under their address, installs from the folder, and records it."""
    build, install, dry_run, record = release
    assert ["make", "wheels", "MODELKIN_PROJECT_URL=https://..."] == build
    assert ["make", "release"] == dry_run
    assert "modelkin[server]" == install[-1]
    assert ["python", "-m", recorded_statements.__name__] == record


def test_both_distributions_are_built_by_one_hook() -> None:
    """The two files are the same, so that no address can differ."""
    of_service, of_sdk = ROOT / "hatch_build.py", ROOT / "client_sdk" / "hatch_build.py"
    assert of_service.read_text() == of_sdk.read_text()
