"""/livez and /readyz: what probes and proxies ask."""

from __future__ import annotations

import httpx
import pytest

from tests.support.fixtures import Start


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_may_ask_for_the_head_alone(start: Start, path: str) -> None:
    """A HEAD has status and headers of the GET, and no body; of a body it may say the length."""
    server = start().wait_until_ready()
    asked = httpx.get(server.url + path, trust_env=False)
    head = httpx.head(server.url + path, trust_env=False)
    assert (200, 200, b"") == (asked.status_code, head.status_code, head.content)
    assert asked.headers["content-length"] == head.headers["content-length"]
    assert "GET" in httpx.post(server.url + path, trust_env=False).headers["allow"]
