"""Every command line of every page runs, in the state in which its reader is.

``BEFORE`` has the pages whose lines run here. Of any other line ``ELSEWHERE`` says which test runs
it, or why none does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands.lines import PAGES, ROOT, Line, in_sentences, lines
from tests.docs.commands.reader import Reader, without_figures
from tests.docs.commands.states import BEFORE, everything
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.server_process import Server

ALL = ""
"""Every line begins so."""
SERVES = "goes on until it is stopped: tests/app/server starts services"
INSTALLS = "installs from an index: tests/packaging installs the wheels"
ELSEWHERE = {
    "CONTRIBUTING.md": {
        "git clone": "needs the address of the repository",
        "make test": "runs all tests, this one among them",
    },
    "README.md": {
        "make demo": "tests/demo runs it",
        "make test": "runs all tests, this one among them",
        "python3 -m venv": "tests/packaging installs what this line installs",
        "pip install": INSTALLS,
        "modelkin serve": SERVES,
        "modelkin push": "tests/docs/test_readme.py, within the tour",
        "modelkin lineage": "tests/docs/test_readme.py, within the tour",
        "curl -s 'http": "tests/docs/test_readme.py asks it within the tour",
    },
    "client_sdk/README.md": {ALL: "tests/docs/test_readers_commands.py runs them"},
    "docs/anatomy.md": {
        "pip download": "needs an index: tests/docs/test_anatomy_page.py makes such models",
        "unzip": "opens what the line above fetches",
        "mv": "renames what the line above opens",
        "modelkin anatomy minilm-int8.safetensors --with all": "tests/docs/test_anatomy_page.py",
        "modelkin fingerprint all": "tests/docs/test_anatomy_page.py",
    },
    "docs/audit.md": {ALL: "tests/docs/test_cli_page.py"},
    "docs/backups.md": {ALL: "tests/docs/test_guides.py"},
    "docs/catalogue.md": {"pip install": INSTALLS},
    "docs/cli.md": {ALL: "tests/docs/test_cli_page.py"},
    "docs/clients.md": {ALL: "tests/e2e/generated_clients"},
    "docs/curl.md": {ALL: "tests/docs/commands/test_curl_page.py"},
    "docs/flower.md": {ALL: "tests/packaging/test_flower_requirements.py"},
    "docs/heads.md": {ALL: "tests/docs/test_cli_page.py"},
    "docs/jobs.md": {"MODELKIN_DATABASE_URL": SERVES},
    "docs/monitoring.md": {"pip install": INSTALLS, "MODELKIN_OTLP": SERVES},
    "docs/operations.md": {"kill -HUP": "needs systemd: tests/app/server sends the signal"},
    "docs/sharing.md": {ALL: "tests/docs/test_readers_commands.py"},
    "docs/signatures.md": {ALL: "tests/docs/test_guides.py"},
    "docs/stores.md": {"MODELKIN_": SERVES},
    "docs/upgrading.md": {"pip install": INSTALLS},
    "docs/versions.md": {
        "make": "tests/packaging builds and tries the wheels",
        "pip install": INSTALLS,
        "python -m": "writes into the repository: tests/app/infra reads what it wrote",
    },
    "docs/watching.md": {
        "pip install": INSTALLS,
        "modelkin serve": SERVES,
        "MODELKIN_EGRESS_ALLOW": SERVES,
    },
    "docs/webhooks.md": {"MODELKIN_EGRESS_ALLOW": SERVES},
}
"""By page and the begin of the line."""
UNFINISHED = "sentences name it without the arguments that it needs; blocks have them"
PIPES = "a pipe: tests/sdk/cli reads standard input, and writes standard output"
IN_SENTENCES = {
    "docs/backups.md": {
        "modelkin serve renew-secrets": "needs an old secret: tests/app/operations"
    },
    "docs/cli.md": {
        "modelkin pull": PIPES,
        "modelkin models": PIPES,
        "modelkin acknowledge": "needs a finding: a block of docs/audit.md has one",
    },
    "docs/files.md": {"modelkin push": "needs a pipeline: tests/sdk/checkpoints"},
    "docs/flower-learngenes.md": {ALL: UNFINISHED},
    "docs/heads.md": {"modelkin push": UNFINISHED},
    "docs/hubs.md": {"modelkin support": UNFINISHED},
    "docs/operations.md": {ALL: SERVES},
    "docs/privacy.md": {ALL: UNFINISHED},
    "docs/sdk.md": {ALL: UNFINISHED},
    "docs/sharing.md": {"modelkin merge show": UNFINISHED},
    "docs/starting.md": {"modelkin start": "needs learngenes: tests/docs/test_starting_page.py"},
    "docs/stores.md": {"modelkin serve rebuild-buckets": "has a part that may be left out"},
    "docs/wire-format.md": {ALL: "a text that is hashed, and no command"},
}
"""The same of what sentences name."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service of all readers, each with spaces of its own."""
    running = Server(tmp_path_factory.mktemp("commands"), "--egress-allow=127.0.0.1").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def reader(server: Server, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader in an empty folder, whose hub is on this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.setenv("MODELKIN_DATABASE_URL", server.database_url)
    monkeypatch.setenv("MODELKIN_BLOB_URL", f"file://{server.blobs}")
    (tmp_path / "secret").write_text("a long random text")
    return Reader(server.url, hub.url, tmp_path, monkeypatch.setenv)


def runs_here(page: str, line: Line) -> bool:
    """Whether no other test has this line."""
    return not any(line.command.startswith(begin) for begin in ELSEWHERE.get(page, {}))


@pytest.mark.parametrize("page", PAGES)
def test_no_line_is_overlooked(page: str) -> None:
    """A page has lines that run here, or in the test that is named; and no name is left over."""
    found = lines(page)
    assert any(runs_here(page, line) for line in found) == (page in BEFORE)
    for begin, reason in ELSEWHERE.get(page, {}).items():
        assert any(line.command.startswith(begin) for line in found), begin
        assert all((ROOT / test).exists() for test in re.findall(r"tests/[\w/.]+", reason)), reason


@pytest.mark.slow
@pytest.mark.parametrize("page", BEFORE)
def test_the_lines_of_a_page(page: str, reader: Reader) -> None:
    """Each succeeds where its reader is, and prints what the page says, but for the figures."""
    BEFORE[page](reader)
    for line in lines(page):
        if runs_here(page, line):
            printed = reader.run(line.command)
            if line.shown is not None:
                assert re.fullmatch(pattern(line.shown), without_figures(printed)), printed


@pytest.mark.slow
def test_what_sentences_name(reader: Reader) -> None:
    """Each command succeeds, with models, files and spaces of the reader in place of the page's."""
    everything(reader)
    for page in PAGES:
        for command in in_sentences(page):
            if not any(command.startswith(begin) for begin in IN_SENTENCES.get(page, {})):
                reader.run(command)


def pattern(shown: str) -> str:
    """What an output is like, with anything where the page has three dots."""
    stable = re.escape(without_figures(shown)).replace(r"\.\.\.", "(?s:.*)")
    return stable.replace(r"shares\ weights", r"(?:shares\ weights|reuses\ tensors)")
