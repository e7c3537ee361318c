"""/metrics of a service, as values that tests compare."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Values", "answers_of", "parsed", "processes_in", "scraped"]

Values = dict[str, dict[tuple[str, ...], float]]
"""The samples of each metric, by the values of their labels."""


def scraped(url: str) -> Values:
    """The metrics of the service at this URL, as one of its processes shows them."""
    return parsed(httpx.get(f"{url}/metrics", trust_env=False).text)


def parsed(text: str) -> Values:
    """The metrics of a scrape."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def answers_of(values: Values, route: str) -> float:
    """How often requests of a route were answered."""
    counts = values.get("modelkin_request_seconds_count", {})
    return sum(count for labels, count in counts.items() if route in labels)


def processes_in(values: Values) -> set[int]:
    """The processes that ``modelkin_info`` names."""
    return {int(part) for labels in values["modelkin_info"] for part in labels if part.isdigit()}
