"""Requests at random of any caller: no foreign data, and no 5xx but the 507 of a quota."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.faults.requests import Generator
from tests.faults.tenants import fill, put_models, require_allowed, two_tenants
from tests.support.fixtures import Figure
from tests.support.repetitions import repetitions

SEED = 1906


@pytest.mark.slow
def test_requests_of_any_caller_at_random(tmp_path: Path, figure: Figure) -> None:
    """None is answered with a 5xx but the 507 of a quota, none but the victim's own shows a text of
    the victim, and what it has is afterwards what it was.
    """
    count = repetitions(100_000, few=250)
    answered: Counter[int] = Counter()
    operations: set[str] = set()
    with (
        two_tenants(tmp_path) as (server, asker, foreign),
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as keyless,
    ):
        own = fill(asker, "mine", "own")
        own["prefix"] = []  # the asker goes on with its key
        known = {name: own[name] + foreign[name] for name in own}
        models = {"model": ["own-m0", "own-m1", "own-m9"], "members": ["own-m0"]}
        names = {**known, **models, "target": models["model"], "a": ["own-m0"], "b": ["own-m1"]}
        generator = Generator(SEED, names)
        for number in range(count):
            if number % 500 == 499:
                put_models(asker, "mine", "own")
            caller = keyless if number % 4 == 0 else asker
            operation, request = generator.request()
            answer = caller.request(**request)
            shown = f"seed {SEED}, request {number}: {operation} {request}: {answer.text[:500]}"
            answered[answer.status_code] += 1
            operations.add(operation)
            require_allowed(operation, answer, keyless=caller is keyless, shown=shown)
    most = ", ".join(f"{many:,} {status}" for status, many in answered.most_common(6))
    figure(
        f"{count:,} requests to {len(operations)} operations: {most}, {answered[507]:,} a 507 of a "
        f"quota, no other 5xx, seed {SEED}"
    )
