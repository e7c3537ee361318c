"""Reports over HTTP: made by jobs, listed, read in four forms, kept, and made by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_core import to_json

from app.kinship.reports.policies import ReportPolicies
from app.kinship.reports.schemas import ReportOut
from app.kinship.reports.service import ReportService
from modelkin.types.reports import Report
from tests.app.kinship.reports.conftest import Hub
from tests.support.app.fingerprints import made_fingerprint
from tests.support.servers.webhook_receiver import Receiver, receiving

FORMS = {
    "application/json": "application/json",
    "text/html": "text/html; charset=utf-8",
    "text/csv": "text/csv; charset=utf-8; header=present",
    "application/vnd.cyclonedx+json": "application/vnd.cyclonedx+json; version=1.6",
}
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of its own."""
    with receiving() as made:
        yield made


@pytest.mark.slow
def test_a_report_has_what_was_found_of_all_models(made: dict[str, Any]) -> None:
    """Bases that nobody declared, copies, licences, and a declared base that is not stored."""
    report = made
    assert (8, 8, 8) == tuple(report["size"][name] for name in ("fingerprints", "models", "new"))
    found = dict.fromkeys(("org/silent", "org/mirror", "org/claims", "org/joined"), "meta/base")
    assert found == {each["model"]: each["base"] for each in report["undeclared"]}
    assert [["meta/base", "org/mirror"]] == [each["models"] for each in report["copies"]]
    licenses = {each["model"]: each["license"] for each in report["license_findings"]}
    assert {"org/tuned": "apache-2.0", "org/silent": None, "org/joined": "mit"} == licenses
    assert 2 == report["size"]["declared"]
    assert "1 declared base is not stored here" in report["notes"][-1]
    assert 0 < report["size"]["saved"] < report["size"]["file_bytes"]


@pytest.mark.slow
def test_a_declared_base_that_lines_speak_against_is_contradicted(made: dict[str, Any]) -> None:
    """Of whatever layout; one that is found is not, and one that is not stored is not judged."""
    [wrong] = made["contradicted"]
    assert ("org/claims", "lab/other", "lines", None) == tuple(
        wrong[name] for name in ("model", "declared_base", "reason", "space")
    )
    assert "meta/base" == wrong["likely_base"]
    assert (True, None) == (wrong["log10_p"] > -3, wrong["no_p"])
    assert "1 of 2 declared bases that could be judged is contradicted" in made["headlines"][0]


@pytest.mark.slow
def test_what_was_put_together_is_taken_apart(made: dict[str, Any]) -> None:
    """With the share of lines that each part has."""
    [joined] = (each for each in made["merges"] if each["model"] == "org/joined")
    assert ("assembled", ["meta/base", "lab/other"]) == (joined["kind"], joined["parts"])
    assert joined["shares"][0] > joined["shares"][1] > 0


@pytest.mark.slow
def test_a_report_is_read_in_four_forms(hub: Hub, made: dict[str, Any]) -> None:
    """`Accept` says which; a browser gets the page, and other types are refused."""
    path = f"/v1/reports/{made['id']}"
    for accept, expected in FORMS.items():
        answer = hub.get(path, Accept=accept)
        assert (200, expected) == (answer.status_code, answer.headers["content-type"])
        assert "Accept" in answer.headers["vary"]
    page = hub.get(path, Accept=BROWSER)
    assert page.text.startswith("<!DOCTYPE html>")
    assert "style-src 'sha256-" in page.headers["content-security-policy"]
    table = hub.get(path, Accept="text/csv")
    assert ".csv" in table.headers["content-disposition"]
    assert 406 == hub.get(path, Accept="image/png").status_code
    assert made == hub.get("/v1/reports/latest").json()


def test_the_next_report_begins_where_the_last_one_ended(empty: Hub) -> None:
    """It is about what came since, and a moment or null say another begin."""
    empty.put("org/first", made_fingerprint(1), 1)
    first = empty.make()
    assert first["since"] is None
    empty.put("org/later", made_fingerprint(2), 9)
    later = empty.make()
    assert first["until"] == later["since"]
    assert ["org/later"] == [each["model"] for each in later["models"]]
    assert 2 == empty.make(since=None)["size"]["models"]
    assert 2 == empty.make(since="2026-01-01T00:00:00+01:00")["size"]["models"]


@pytest.mark.parametrize("since", ["yesterday", "2026-01-01T00:00:00", 5, "2999-01-01T00:00:00Z"])
def test_a_report_begins_at_a_moment_of_the_past(empty: Hub, since: Any) -> None:
    """Another text, a time without a zone, a number and the future are refused."""
    http, headers = empty.app.http, empty.headers
    answer = http.post("/v1/reports", json={"since": since}, headers=headers)
    assert 422 == answer.status_code
    assert "since" in answer.json()["detail"]


def test_a_repeated_request_has_one_report(empty: Hub) -> None:
    """While the job of the first one has not ended, it is the answer to the second one."""
    http, headers = empty.app.http, empty.headers
    first, second = (
        http.post("/v1/reports", json={}, headers=headers).json()["id"] for _ in range(2)
    )
    assert first == second
    empty.app.worker.run_all()
    assert 1 == len(empty.get("/v1/reports").json()["items"])


def test_reports_are_listed_and_deleted(empty: Hub) -> None:
    """The newest first, page by page, with their figures and without their tables."""
    ids = [empty.make()["id"] for _ in range(3)]
    page = empty.get("/v1/reports?limit=2").json()
    assert ids[:0:-1] == [each["id"] for each in page["items"]]
    assert {"id", "since", "until", "size", "made_by"} == page["items"][0].keys()
    last = empty.get(f"/v1/reports?cursor={page['next_cursor']}").json()
    assert [ids[0]] == [each["id"] for each in last["items"]]
    path = f"/v1/reports/{ids[2]}"
    assert 204 == empty.app.http.delete(path, headers=empty.headers).status_code
    assert 404 == empty.get(path).status_code
    assert 404 == empty.app.http.delete(path, headers=empty.headers).status_code
    assert ids[1] == empty.get("/v1/reports/latest").json()["id"]


def test_before_the_first_report_there_is_none(empty: Hub) -> None:
    """The refusal says how one is made."""
    answer = empty.get("/v1/reports/latest")
    assert (404, "report_not_found") == (answer.status_code, answer.json()["code"])
    assert "POST /v1/reports" in answer.json()["detail"]


@pytest.mark.slow
def test_a_report_is_what_is_documented(made: dict[str, Any]) -> None:
    """The answer and the client's value have the fields of the schema, and no other."""
    assert set(ReportOut.model_fields) == set(made) == set(Report.__dataclass_fields__)
    assert made == json.loads(to_json(ReportOut.model_validate(made)))


@pytest.mark.slow
def test_other_tenants_see_nothing_of_a_report(hub: Hub, made: dict[str, Any]) -> None:
    """Neither the report, nor a badge, nor that there is one."""
    headers = hub.app.headers_of("somebody-else")
    assert 404 == hub.app.http.get(f"/v1/reports/{made['id']}", headers=headers).status_code
    badge = "/v1/fingerprints/meta/base/badge.svg"
    assert 404 == hub.app.http.get(badge, headers=headers).status_code
    assert [] == hub.app.http.get("/v1/reports", headers=headers).json()["items"]


def policies_at(hub: Hub, moment: datetime) -> ReportPolicies:
    """The policies as the periodic task checks them at a moment."""
    return ReportPolicies(hub.app.database, hub.app.services[ReportService], lambda: moment)


def test_a_policy_makes_reports_by_themselves(empty: Hub) -> None:
    """The first one at once and about all models, the next when it is due, and so many are kept."""
    http, headers = empty.app.http, empty.headers
    assert 404 == empty.get("/v1/report-policy").status_code
    policy = http.put("/v1/report-policy", json={"every_seconds": 3600, "keep": 2}, headers=headers)
    assert policy.json()["last_at"] is None
    now = datetime.now(UTC)
    for hours in range(4):
        policies = policies_at(empty, now + timedelta(hours=hours))
        assert 1 == len(policies.make_due())
        assert [] == policies.make_due()
        empty.app.worker.run_all()
    items = empty.get("/v1/reports").json()["items"]
    assert ["policy", "policy"] == [each["made_by"] for each in items]
    assert items[1]["until"] == items[0]["since"]
    assert 204 == http.delete("/v1/report-policy", headers=headers).status_code
    assert 404 == http.delete("/v1/report-policy", headers=headers).status_code
    assert 2 == len(empty.get("/v1/reports").json()["items"])


def test_a_report_of_a_policy_begins_at_the_last_one_of_a_policy(empty: Hub) -> None:
    """What is requested in between takes nothing out of it."""
    http, headers = empty.app.http, empty.headers
    http.put("/v1/report-policy", json={"every_seconds": 3600}, headers=headers)
    policies_at(empty, datetime.now(UTC)).make_due()
    empty.app.worker.run_all()
    first = empty.get("/v1/reports/latest").json()
    empty.make()
    policies_at(empty, datetime.now(UTC) + timedelta(hours=2)).make_due()
    empty.app.worker.run_all()
    assert first["until"] == empty.get("/v1/reports/latest").json()["since"]


def test_a_report_that_is_ready_is_an_event(empty: Hub, receiver: Receiver) -> None:
    """Subscribers to all spaces get its figures and where it is; those of one space do not."""
    subscription = {"events": ["report.ready"]}
    http, headers = empty.app.http, empty.headers
    for more in ({"url": f"{receiver.url}/ok"}, {"url": f"{receiver.url}/no", "space": "s"}):
        made = http.post("/v1/subscriptions", json=subscription | more, headers=headers)
        assert 201 == made.status_code, made.text
    report = empty.make()
    empty.app.worker.run_all()
    (request,) = receiver.at("/ok")
    event = json.loads(request.body)
    assert "report.ready" == event["type"]
    assert report["id"] == event["data"]["report"]
    assert report["size"].items() <= event["data"].items()
    assert report == empty.get(event["data"]["url"]).json()
    assert [] == receiver.at("/no")


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_a_badge_says_what_a_model_is_and_since_when(hub: Hub) -> None:
    """It is kept by its tag until the model is measured again."""
    path = "/v1/fingerprints/org/silent/badge.svg"
    answer = hub.get(path)
    assert (200, "image/svg+xml") == (answer.status_code, answer.headers["content-type"])
    assert "shares weights with meta/base" in answer.text
    assert f"{datetime.now(UTC):%Y-%m}" in answer.text
    tag = answer.headers["etag"]
    known = hub.get(path, **{"If-None-Match": tag})
    assert (304, b"") == (known.status_code, known.content)
    assert "no other model found" in hub.get("/v1/fingerprints/org/lost/badge.svg").text
    assert 404 == hub.get("/v1/fingerprints/org/nobody/badge.svg").status_code


@pytest.mark.slow
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org/tuned", "shares weights with meta/base"),
        ("org/mirror", "a copy of meta/base"),
        ("org/claims", "shares weights with meta/base"),
        ("meta/base", "shares weights with 5 models"),
        ("lab/other", "shares weights with org/joined"),
        ("org/joined", "assembled of 2 models"),
    ],
)
def test_a_badge_names_a_base_and_no_child(hub: Hub, name: str, said: str) -> None:
    """A younger copy may be nearer; where no base is drawn, lines have no direction."""
    assert f"weights: {said}, measured" in hub.get(f"/v1/fingerprints/{name}/badge.svg").text


def test_of_copies_without_dates_the_first_stored_is_named(empty: Hub) -> None:
    """The first itself is no copy of another one, on its badge."""
    for name in ("org/first", "org/second"):
        empty.put(name, made_fingerprint(3), 0, published_at=None)
    empty.app.worker.run_all()
    for name, said in (
        ("first", "shares weights with org/second"),
        ("second", "a copy of org/first"),
    ):
        assert f"weights: {said}," in empty.get(f"/v1/fingerprints/org/{name}/badge.svg").text


def test_hostile_names_are_text_in_every_form(empty: Hub) -> None:
    """A model named like a tag or a formula breaks no form of a report."""
    name = "=1+1/<script>alert(1)</script>"
    empty.put(name, made_fingerprint(7), 1, license="=2+2")
    made = empty.make()
    path = f"/v1/reports/{made['id']}"
    assert "<script>" not in empty.get(path, Accept="text/html").text
    assert "'=1+1/<script>" in empty.get(path, Accept="text/csv").text
    assert [name] == [each["model"] for each in made["models"]]
    bill = empty.get(path, Accept="application/vnd.cyclonedx+json").json()
    [component] = bill["components"]
    assert name == f"{component['group']}/{component['name']}"
