"""Alerts and dashboard of docs/recipes: their metrics, labels and values are the service's."""

from __future__ import annotations

import json
import re
import shutil
from typing import get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.jobs.records import JobState
from app.webhooks.schemas import DeliveryOut
from tests.docs.recipes import files as recipes
from tests.docs.recipes.files import FOLDER, expressions, labels_in, metrics_in, passes
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE
from tests.support.declared_problems import DECLARED, OPERATIONS

OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus adds, or a histogram."""
ENDS = ("", "_bucket", "_count", "_sum")
ROUTES = {operation.path for operation in OPERATIONS.values()}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics of a service, after a refusal and with a job, and the labels of their samples."""
    with open_app(tmp_path_factory.mktemp("recipes"), SQLITE) as app:
        space = app.create_space("s")
        app.http.get("/v1/spaces/nowhere")
        app.http.post(f"/v1/spaces/{space}/jobs", json={"kind": "rebuild_buckets"})
        text = app.http.get("/metrics").text
    named: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
        for end in ends.get(family.type, [""]):
            named[family.name + end] = {
                key for each in family.samples for key in each.labels if key != "le"
            }
    return named


def documented() -> dict[str, set[str]]:
    """The labels of each metric in the table of the page of monitoring."""
    rows = re.findall(
        r"^\| `(modelkin_\w+)` \| (.*?) \|", (FOLDER.parent / "monitoring.md").read_text(), re.M
    )
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_metric_of_an_expression_is_scraped(scraped: dict[str, set[str]]) -> None:
    """Those of the service and its process; ``up`` is Prometheus' own."""
    for expression in expressions():
        named = metrics_in(expression)
        assert named, expression
        assert named <= scraped.keys() | {"up"}, expression


def test_every_metric_of_the_page_is_shown_or_watched() -> None:
    """A panel or an alert names each metric that the page of monitoring has."""
    named = set().union(*map(metrics_in, expressions()))
    missing = {name for name in documented() if not {f"{name}{end}" for end in ENDS} & named}
    assert set() == missing


def test_every_label_of_an_expression_is_one() -> None:
    """Of a metric that it names, as the page of monitoring has it, or of Prometheus."""
    known = {f"{name}{end}": labels for name, labels in documented().items() for end in ENDS}
    for expression in expressions():
        labels = [known.get(metric, set()) for metric in metrics_in(expression)]
        assert labels_in(expression) <= OF_PROMETHEUS.union(*labels), expression


def test_the_table_of_metrics_is_true(scraped: dict[str, set[str]]) -> None:
    """Each metric of the page is scraped, with these labels where it has a sample."""
    for name, labels in documented().items():
        metric = name if name in scraped else f"{name}_count"
        assert scraped[metric] in (labels, set()), name
    assert {"kind", "state"} == scraped["modelkin_jobs"]
    assert {"code"} == scraped["modelkin_refusals_total"]


def test_every_value_of_a_label_is_one() -> None:
    """Codes are those of problems, states those of jobs and deliveries."""
    text = " ".join(expressions())
    codes = set(re.findall(r'\bcode="(\w+)"', text))
    assert codes <= {code for _, _, code in DECLARED} | {"internal_error"}
    assert "storage_full" in codes
    named = re.findall(r'\bstate=~?"([\w|]+)"', text)
    states = {state for each in named for state in each.split("|")}
    of_deliveries = get_args(DeliveryOut.model_fields["state"].annotation)
    assert {"queued", "failed"} < states <= {*get_args(JobState), *of_deliveries}


def test_the_service_is_scraped_where_it_is() -> None:
    """Address, path and the name of the rules' file."""
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    [scrape] = config["scrape_configs"]
    env = recipes.variables("modelkin.env")
    address = f"{env['MODELKIN_HOST']}:{env['MODELKIN_PORT']}"
    assert [{"targets": [address]}] == scrape["static_configs"]
    assert scrape["metrics_path"] in ROUTES
    assert all((FOLDER / name).exists() for name in config["rule_files"])


def test_prometheus_takes_its_files() -> None:
    """The rules and the configuration."""
    if shutil.which("promtool") is None:
        pytest.skip("Prometheus is not installed")
    passes("promtool", "check", "rules", str(FOLDER / "alerts.yaml"))
    passes("promtool", "check", "config", "--syntax-only", str(FOLDER / "prometheus.yaml"))


def test_the_dashboard_can_be_imported() -> None:
    """Panels have ids and places of their own, and ask the chosen Prometheus alone."""
    board = json.loads((FOLDER / "dashboard.json").read_text())
    panels = board["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    sources = {each["datasource"]["uid"] for panel in panels for each in (panel, *panel["targets"])}
    assert {"${datasource}"} == sources
    chosen = {f"${each['name']}" for each in board["templating"]["list"]}
    used = set(re.findall(r"\$(?!__)\w+", " ".join(expressions())))
    assert used <= chosen
