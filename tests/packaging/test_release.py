"""What a release asks for: a tag of this version, its section of the changelog, no change left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from modelkin._version import __version__
from tests.packaging.release import ROOT, faults, main, version

TAG = {"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "v1.2.3"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone at 1.2.3, ready for its tag."""
    package = tmp_path / "client_sdk" / "modelkin"
    package.mkdir(parents=True)
    (package / "_version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.3 - 2030-01-01\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("how")
    return tmp_path


def test_the_version_is_that_of_the_packages() -> None:
    """Read as text, it is what an import says."""
    assert __version__ == version(ROOT)


def test_a_clone_that_is_ready_is_published(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with its tag."""
    assert 0 == main(TAG, clone)
    assert "version 1.2.3, to publish\n" == capsys.readouterr().out


def drop_section(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.30 - 2030-01-01\n")


def leave_a_change(clone: Path) -> None:
    (clone / "changes" / "faster.fixed.md").write_text("It is faster.")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (drop_section, "CHANGELOG.md has no section for 1.2.3"),
        (leave_a_change, "changes/ still has what waits for this release: faster.fixed.md"),
    ],
)
def test_a_tag_of_a_clone_that_is_not_ready_fails(
    clone: Path, capsys: pytest.CaptureFixture[str], break_it: Callable[[Path], None], said: str
) -> None:
    """A dry run says the same and goes on, as changes wait all the time."""
    break_it(clone)
    assert 1 == main(TAG, clone)
    assert f"wrong: {said}" in capsys.readouterr().out
    assert 0 == main({"GITHUB_REF_TYPE": "branch", "GITHUB_REF_NAME": "main"}, clone)
    assert "a dry run" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["v1.2.4", "1.2.3", "v1.2.3rc1", "v"])
def test_a_tag_of_another_version_fails(clone: Path, name: str) -> None:
    """The tag has to be that of the files, with its v."""
    [fault] = faults({**TAG, "GITHUB_REF_NAME": name}, clone)
    assert "the tag has to be v1.2.3" in fault
