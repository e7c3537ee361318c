"""``python -m app tenants``: what each tenant has and may have, and quotas set for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.jobs.service import JobService
from app.operations.cli.tenants import UNCOUNTED, run
from app.webhooks.delivery import JOB_KIND as DELIVERIES
from modelkin import Support
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend

Command = Callable[..., tuple[int, list[list[str]], str]]


@pytest.fixture(scope="module")
def folder(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service is; another one for each database."""
    return tmp_path_factory.mktemp(backend.name)


@pytest.fixture(scope="module")
def app(backend: Backend, folder: Path) -> Iterator[AppHarness]:
    """A service whose only tenant has a space, two models, a job and a source."""
    with open_app(folder, backend) as app:
        app.create_space("s")
        for number, name in enumerate("ab"):
            app.put_support("s", name, Support.from_indices(range(number, 300, 3), 10_000))
        app.http.post("/v1/spaces/s/jobs", json={"kind": "rebuild_buckets"}).raise_for_status()
        source = app.hubs.create()
        app.hubs.push(source, "org/a")
        yield app


@pytest.fixture
def tenants(
    app: AppHarness,
    backend: Backend,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Runs the command beside the service; its code, the words of each line, and its errors."""
    del app
    monkeypatch.setenv("MODELKIN_DATABASE_URL", backend.url(folder))

    def command(*arguments: str) -> tuple[int, list[list[str]], str]:
        capsys.readouterr()
        code = run(list(arguments))
        said = capsys.readouterr()
        return code, [line.split() for line in said.out.splitlines()], said.err

    return command


def test_what_a_tenant_has_is_listed(tenants: Command) -> None:
    """Each quota with what is used of it; syncs of sources do not count as jobs."""
    code, [names, line], _ = tenants("list")
    used = dict(zip(names, line, strict=True))
    assert (0, "default") == (code, used["TENANT"])
    assert ("1/1,000", "2/10,000,000", "1/1,000") == tuple(
        used[name] for name in ("SPACES", "MODELS", "QUEUED-JOBS")
    )
    assert used["SUPPORT-BYTES"].endswith("/1TiB")
    assert ("1/100", "0/100,000") == (used["SOURCES"], used["REPORTERS"])


def test_a_quota_is_set_while_the_service_goes_on(app: AppHarness, tenants: Command) -> None:
    """From the next request on it holds; ``none`` and ``default`` lift it."""
    code, [_, line], _ = tenants("set", "default", "--models", "2", "--support-bytes", "5GiB")
    assert (0, "2/2*") == (code, line[2])
    assert line[3].endswith("/5GiB*")
    third = Support.from_indices(range(2, 300, 3), 10_000).to_bytes()
    url, headers = "/v1/spaces/s/supports/c", {"Content-Type": "application/vnd.modelkin.support"}
    assert 507 == app.http.put(url, content=third, headers=headers).status_code
    _, [_, line], _ = tenants("set", "default", "--models", "none")
    assert "2/-*" == line[2]
    assert 201 == app.http.put(url, content=third, headers=headers).status_code
    _, [_, line], _ = tenants("set", "default", "--models", "default")
    assert "3/10,000,000" == line[2]
    tenants("set", "default", "--support-bytes", "default")
    assert 204 == app.http.delete("/v1/spaces/s/models/c").status_code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "nemo", "--models", "2"), "there is no tenant 'nemo'"),
        (("list", "--tenant", "nemo"), "keys create --tenant nemo"),
        (("set", "default"), "say which quotas"),
        (("set", "default", "--models", "many"), "--models is a number, `none` or `default`"),
        (("set", "default", "--models", "5GiB"), "not '5GiB'"),
        (("set", "default", "--events", "none"), "events: a quota is 1 or more"),
        (("set", "default", "--spaces", "-1"), "--spaces"),
    ],
)
def test_a_mistake_changes_nothing(
    tenants: Command, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what would do."""
    try:
        code, _, error = tenants(*arguments)
    except SystemExit as exit_:  # of the parser, for what looks like a flag
        code, error = int(str(exit_.code)), capsys.readouterr().err
    assert code in {1, 2}
    assert said in error
    _, [_, line], _ = tenants("list")
    assert not any(cell.endswith("*") for cell in line)


def test_the_command_counts_the_jobs_that_the_service_counts(app: AppHarness) -> None:
    """What it leaves out are the kinds of the other queues, but for the service's own."""
    jobs = app.services[JobService]
    own = {job.kind for job in jobs.periodic} | {DELIVERIES}
    others = {kind for kind, queue in jobs.queues.items() if queue != "jobs"}
    assert set(UNCOUNTED) <= others <= {*UNCOUNTED, *own}


@pytest.mark.parametrize("arguments", [["list"], ["set", "default", "--models=5"]])
def test_a_mistyped_url_makes_no_database(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lists or changes quotas refuses where there is no database, and makes none."""
    monkeypatch.setenv("MODELKIN_DATABASE_URL", f"sqlite:///{tmp_path}/typo.db")
    assert 1 == run(arguments)
    assert [] == list(tmp_path.iterdir())
