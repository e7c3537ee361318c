"""``python -m tests.support.faults.rebinding_world``: names that move inside, in a network alone.

It runs in namespaces of its own (``unshare``), in which loopback has public and private addresses.
The resolver is the machine's, a name server on loopback answers it, and servers count requests. It
prints, for each trial, how many requests came from outside and inside: with the service's guard,
and by a client that checks a URL first and then connects to its name.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Protocol

import httpx

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.webhooks.sender import Sender
from modelkin.core.foreign_json import Raw
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.webhooks import new_secret
from tests.support.faults.dns_server import NameServer

OUT4, OUT6, IN4, IN6 = "1.1.1.1", "2606:4700::1111", "10.0.0.1", "fd00:ec2::254"
PUBLIC, MIXED = (OUT4, OUT6), (OUT4, IN6)
INSIDE = {IN4, IN6}


def zone(name: str, look: int) -> tuple[Sequence[str], Sequence[str]]:
    """The name's first label says how it moves."""
    kind = name.partition(".")[0]
    if kind == "public":
        return (), PUBLIC
    if kind == "alternating":  # checked at one address, connected to at the other
        return (), (PUBLIC, (IN4, IN6))[look % 2]
    if kind == "later":  # hours after the first attempt
        return (), PUBLIC if look < 2 else (IN4, IN6)
    if kind == "mixed":  # public at first, then with one address inside of the other family
        return (), PUBLIC if look == 0 else MIXED
    if kind == "alias":  # public at first, then an alias of an alias of a name inside
        if look == 0:
            return ("one.example", "two.example"), PUBLIC
        return ("one.example", "metadata.internal"), (IN4, IN6)
    return (), (IN4, IN6) if kind == "inside" else ()


class Handler(BaseHTTPRequestHandler):
    """Counts a request by whether its address is inside; /moved redirects inside."""

    hits: ClassVar = Counter[str]()

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        own = self.connection.getsockname()[0]
        Handler.hits["inside" if own in INSIDE else "outside"] += 1
        moved = self.path == "/moved"
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "http://inside.example/secret")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
        """Say nothing."""


class Server6(ThreadingHTTPServer):
    """The same at an IPv6 address."""

    address_family = socket.AF_INET6


class Way(Protocol):
    """A way of the service to a URL that a client gave."""

    def __call__(self, url: str) -> object: ...


def guarded() -> tuple[Callable[[str], None], Sequence[Way]]:
    """How the service checks a URL, and how it connects to it: to a receiver, and to a hub."""
    egress = Egress(Allowlist(), tls=httpx.create_ssl_context())

    def deliver(url: str) -> None:
        Sender(egress, deadline=5.0).send(url, "id", b"{}", [new_secret()])

    def ask_hub(url: str) -> None:
        origin, _, path = url.rpartition("/")
        limits = TransferLimits(1 << 20, timeout=5.0, total=20.0)
        hub = HubHttpClient(
            origin, egress, authorization=None, limits=limits, refusal=lambda *a, **k: None
        )
        with contextlib.closing(hub), contextlib.suppress(ModelkinError):
            hub.json(f"{origin}/{path}", Raw)

    def check(url: str) -> None:
        with contextlib.suppress(InvalidParameter):
            egress.check_url(url, "url")

    return check, [deliver, ask_hub]


def unguarded() -> tuple[Callable[[str], None], Sequence[Way]]:
    """The same check, and clients that then resolve the name again."""
    check, _ = guarded()

    def post(url: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(url, content=b"{}", trust_env=False, timeout=5.0)

    def get(url: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(url, follow_redirects=True, trust_env=False, timeout=5.0)

    return check, [post, get]


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Loopback with all addresses, the servers, and the name server that the machine asks."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (OUT4, OUT6, IN4, IN6):
        add = ["ip", "addr", "add", address, "dev", "lo", *["nodad"] * (":" in address)]
        subprocess.run(add, check=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "resolv.conf")
        file.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:2\n")
        subprocess.run(["mount", "--bind", str(file), "/etc/resolv.conf"], check=True)
        for address in (OUT4, OUT6, IN4, IN6):
            kind = Server6 if ":" in address else ThreadingHTTPServer
            server = kind((address, 80), Handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield


TRIALS = ("alternating", "later", "mixed", "alias", "public")


def main() -> None:
    """Run all trials and print the requests that arrived."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    with network():
        names = NameServer(zone)
        for label, (check, ways) in {"guarded": guarded(), "unguarded": unguarded()}.items():
            for trial in (*TRIALS, "redirect"):
                Handler.hits.clear()
                for number, way in enumerate(ways):
                    host = "public" if trial == "redirect" else trial
                    path = "moved" if trial == "redirect" else "hook"
                    url = f"http://{host}.{label}{number}.example/{path}"
                    check(url)
                    for _ in range(3):  # attempts, each with a look-up of its own
                        way(url)
                found.setdefault(label, {})[trial] = dict(Handler.hits)
    assert names.looks
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
