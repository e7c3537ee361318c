"""Pages of operations: problems and memory budgets stand in their tables, variables exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from app.infra.storage.object_blobs import LARGE_BYTES
from app.infra.storage.object_store import PATIENT_S, SILENT_S
from app.search.public.records import MAX_DAILY_QUERIES, MAX_K
from app.search.public.schemas import PublicSettingsIn
from app.server.connections import ConnectionLimits
from app.server.server import KEEP_ALIVE_S
from app.server.strict_h11 import MAX_HEAD_BYTES
from app.setting_messages import unknown_variables
from app.settings import Settings
from app.tenancy.auth.service import MAX_KEYS
from tests.docs.pages import words
from tests.support.declared_problems import DECLARED

DOCS = Path(__file__).parents[2] / "docs"
ERRORS = DOCS / "errors.md"
SDK = Path(__file__).parents[2] / "client_sdk" / "modelkin"
MAX_WORDS = 3000
ANSWERED = sorted({(status, code) for _, status, code in DECLARED})
"""Status and code of each problem that an operation declares."""


@pytest.mark.parametrize(("status", "code"), ANSWERED)
def test_an_error_stands_in_the_table(status: int, code: str) -> None:
    """In the row of its status, as code."""
    rows = re.findall(rf"^\| {status} \| (.*) \|$", ERRORS.read_text(), flags=re.MULTILINE)
    assert f"`{code}`" in " ".join(rows)


def test_what_stands_in_the_table_is_answered() -> None:
    """No row has a code that no operation declares, but for those of no operation."""
    edge = {"route_not_found", "method_not_allowed", "internal_error", "client_disconnected"}
    words = {"detail", "request_id"}
    page = ERRORS.read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", page, flags=re.MULTILINE)
    said = {(int(status), code) for status, row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    assert set(ANSWERED) == {(status, code) for status, code in said if code not in edge | words}


_ASKED = PublicSettingsIn().daily_queries
LIMITS = {
    "connections of clients to a process": f"{Settings(_env_file=None).max_connections:,} ",
    "the head of a request": f"{MAX_HEAD_BYTES >> 10} KiB ",
    "time for the head of a request": f"{ConnectionLimits().head_timeout_s:g} s ",
    "time between two requests": f"| {KEEP_ALIVE_S} s |",
    "waiting for a silent [bucket]": f"| {SILENT_S:g} s, to write {LARGE_BYTES >> 20} MiB and more "
    f"{PATIENT_S:g} s |",
    "valid keys of a tenant": f"{MAX_KEYS:,} ",
    "`k`": f"1 to {MAX_K} of a public space",
    "queries of a tenant": f"| {_ASKED:,}; its owner may choose up to {MAX_DAILY_QUERIES:,} |",
}
"""Limits that no setting names on the page, by what their row begins with."""


@pytest.mark.parametrize(("what", "limit"), LIMITS.items())
def test_a_limit_stands_in_the_table(what: str, limit: str) -> None:
    """With the figure of the code."""
    [row] = re.findall(rf"^\| {re.escape(what)}.*$", ERRORS.read_text(), flags=re.MULTILINE)
    assert limit in row


def test_the_memory_budgets_add_up() -> None:
    """The table's defaults are those of the settings, and their sum is the one stated."""
    section = (DOCS / "capacity.md").read_text().partition("\n## Memory\n")[2].partition("\n## ")[0]
    stated = [float(gib) for gib in re.findall(r"^\|.*\| ([0-9.]+) GiB \|", section, flags=re.M)]
    settings = Settings(_env_file=None)
    budgets = [
        settings.index_memory_bytes,
        settings.index_memory_bytes // 4,
        settings.max_inflight_body_bytes,
        settings.max_inflight_body_bytes // 4,
        settings.support_cache_bytes,
        36 * settings.max_ingested_indices * settings.job_concurrency // 2,
    ]
    assert [budget / (1 << 30) for budget in budgets] == stated
    assert f"with the defaults they add up to {sum(stated):g} GiB" in section


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_variable_that_a_page_names_is_read(page: Path) -> None:
    """By the service as a setting, by the SDK, or by the build of a release."""
    of_the_build = variables_in(DOCS.parent / "hatch_build.py")
    assert not unknown_variables(variables_in(page) - of_the_build)


def test_an_operator_reads_one_page_at_a_time() -> None:
    """Each page of the group is short enough to be read, and the first page leads to it."""
    nav = yaml.load((DOCS.parent / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"]
    [group] = [section["Operations"] for section in nav if "Operations" in section]
    first, *others = [page for each in group for page in each.values()]
    lengths = {page: words((DOCS / page).read_text()) for page in (first, *others)}
    assert max(lengths.values()) <= MAX_WORDS, lengths
    start = (DOCS / first).read_text().partition("\n## ")[0]
    assert set(others) <= set(re.findall(r"\]\(([\w.-]+)", start))


def test_every_variable_of_the_SDK_is_known_to_the_service() -> None:
    """A service that shares its environment with clients does not warn of theirs."""
    named = {name for file in SDK.rglob("*.py") for name in variables_in(file)}
    of_the_service = {f"MODELKIN_{name.upper()}" for name in Settings.model_fields}
    own = {f"MODELKIN_{name}" for name in ("URL", "API_KEY", "KERNELS", "SPACE", "PROGRAM")}
    assert own == named - of_the_service
    assert not unknown_variables(named)


def variables_in(file: Path) -> set[str]:
    """The variables that a file names."""
    return set(re.findall(r"\bMODELKIN_[A-Z_]+[A-Z]", file.read_text()))
