"""Egress: the service connects to the public internet and to allowed hosts, nowhere else."""

from __future__ import annotations

import ipaddress
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from app.infra.egress.addresses import is_public, stands_for
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress, EgressRefused
from app.infra.egress.limits import Deadline
from app.settings import Settings
from modelkin.errors import InvalidParameter
from tests.support.egress_addresses import INSIDE, OUTSIDE, SPELLINGS
from tests.support.servers.webhook_receiver import Receiver, receiving

LOOPBACK = Allowlist.parse("127.0.0.0/8")


four = st.one_of(
    st.ip_addresses(v=4),
    st.sampled_from([IPv4Address(a) for a in INSIDE if "." in a and ":" not in a]),
)


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", INSIDE)
def test_no_address_inside_is_public(address: str) -> None:
    """Metadata, private, shared, tunnelled and special addresses are not public."""
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_addresses_outside_are_public(address: str) -> None:
    """The neighbours of every special network are public, and so is what wraps a public address."""
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_what_python_calls_private_is_not_public(address: IPv4Address | IPv6Address) -> None:
    """Whatever an address stands for, Python's own flags never say that it is something else."""
    if is_public(address):
        for inner in stands_for(address):
            flags = ("private", "loopback", "link_local", "multicast", "reserved", "unspecified")
            assert inner.is_global
            assert not any(getattr(inner, f"is_{flag}") for flag in flags)


@given(four, st.integers(0, 2**64 - 1))
def test_what_wraps_an_address_is_as_public_as_that(address: IPv4Address, rest: int) -> None:
    """Mapped, translated and tunnelled forms hide nothing, whatever stands around the address."""
    bits = int(address)
    wrapped = [
        IPv6Address(0xFFFF << 32 | bits),
        IPv6Address(0x64FF9B << 96 | bits),
        IPv6Address(0x2002 << 112 | bits << 80 | rest),
    ]
    assert [is_public(address)] * 3 == [is_public(one) for one in wrapped]
    teredo = IPv6Address(0x20010000 << 96 | rest << 32 | bits ^ 0xFFFFFFFF)
    assert is_public(address) or not is_public(teredo)
    assert address == teredo.teredo[1] == stands_for(teredo)[1]  # type: ignore[index]


# --- URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_an_inner_address_gets_through(host: str) -> None:
    """However a host is written that this machine takes for an inner one, it is refused."""
    with pytest.raises(InvalidParameter) as caught:
        Egress(Allowlist()).check_url(f"http://{host}:8080/path", "url")
    assert "url" == caught.value.field


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "http:// or https://"),
        ("receiver.example/path", "http:// or https://"),
        ("ftp://8.8.8.8/", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("http:///path", "http:// or https://"),
        ("https://user:word@8.8.8.8/", "user name"),
        ("https://user@8.8.8.8/", "user name"),
        ("https://8.8.8.8:99999/", "not a port"),
        ("https://8.8.8.8:0/", "not a port"),
        ("https://[::1/", "not a URL"),
        ("https://xn--0.example/", "not a URL"),
        ("https://8.8.8.8/\n", "not a URL"),
        ("https://8.8.8.8/" + "a" * 2000, "2000 characters"),
        ("https://nobody.invalid/", "cannot be found"),
    ],
)
def test_urls_that_are_none(url: str, said: str) -> None:
    """Each mistake is reported under the name of its field."""

    def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError(f"{host} is unknown")

    with pytest.raises(InvalidParameter, match=said) as caught:
        Egress(Allowlist(), resolve=resolve).check_url(url, "url")
    assert "url" == caught.value.field


def test_every_address_of_a_host_counts() -> None:
    """One inner address among public ones is enough to refuse a host."""
    egress = Egress(Allowlist(), resolve=lambda host, port: ["8.8.8.8", "2606:4700::1", "10.0.0.7"])
    with pytest.raises(InvalidParameter, match="not at a public address"):
        egress.check_url("https://receiver.example/", "url")


def test_names_of_our_own_network_are_not_resolved_for_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The operator sees in one line where a name leads; the client that gave it does not."""
    caplog.set_level("INFO")
    egress = Egress(Allowlist(), resolve=lambda host, port: ["10.11.12.13"])
    with pytest.raises(InvalidParameter) as caught:
        egress.check_url("https://db.corp.internal/", "url")
    with egress.client(timeout=5) as client, pytest.raises(EgressRefused) as refused:
        client.get("https://db.corp.internal/")
    for error in (caught.value, refused.value):
        assert "'db.corp.internal' is not at a public address" in str(error)
        assert "10.11" not in str(error)
    assert 2 * ["refused to connect to 'db.corp.internal': it is at 10.11.12.13"] == caplog.messages


def test_a_public_host_is_let_through() -> None:
    """Nothing is asked of a host all of whose addresses are public."""
    Egress(Allowlist(), resolve=lambda host, port: ["8.8.8.8"]).check_url(
        "https://a.example", "url"
    )


# --- the allow-list -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "url", "good"),
    [
        ("127.0.0.0/8", "http://127.0.0.1:8080/", True),
        ("127.0.0.0/8", "http://[::ffff:127.0.0.1]/", True),
        ("127.0.0.0/8", "http://10.0.0.1/", False),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/", True),
        ("127.0.0.1:8080", "http://127.0.0.1:8081/", False),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("[::1]:8080", "http://[::1]/", False),
        ("fd00::/8, 10.0.0.0/8", "http://[fd12::1]/", True),
        ("hub.internal", "http://HUB.internal./", True),
        ("hub.internal:443", "https://hub.internal/", True),
        ("hub.internal:443", "http://hub.internal/", False),
        ("hub.internal", "http://evil.hub.internal/", False),
        ("", "http://hub.internal/", False),
    ],
)
def test_the_allow_list_opens_what_it_names(allow: str, url: str, *, good: bool) -> None:
    """Networks, hosts and host:port are opened, and nothing beside them."""
    egress = Egress(Allowlist.parse(allow), resolve=lambda host, port: ["192.168.7.7"])
    if good:
        egress.check_url(url, "url")
    else:
        with pytest.raises(InvalidParameter, match="MODELKIN_EGRESS_ALLOW"):
            egress.check_url(url, "url")


@pytest.mark.parametrize(
    "allow", ["http://a", "10.0.0.1/8", "a:b", "a:0", "a b", "a/b", "u@a", "a:99999"]
)
def test_an_allow_list_that_is_none(allow: str) -> None:
    """The settings refuse what names neither host nor network, and say how it is written."""
    with pytest.raises(ValueError, match=r"receiver\.internal:8443"):
        Settings(egress_allow=f"127.0.0.1,{allow}")


# --- connections ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """A server on loopback."""
    with receiving() as made:
        yield made


def test_a_host_that_resolves_to_something_else_gains_nothing(receiver: Receiver) -> None:
    """A name that is public when it is checked and inner when it is connected to is refused."""
    answers = [["8.8.8.8"], ["127.0.0.1"]]
    egress = Egress(Allowlist(), resolve=lambda host, port: answers.pop(0))
    url = receiver.url.replace("127.0.0.1", "rebound.example")
    egress.check_url(url, "url")
    with egress.client(timeout=5) as client, pytest.raises(EgressRefused, match="not at a public"):
        client.post(f"{url}/ok/rebound")
    assert [] == receiver.at("/ok/rebound")


def test_it_connects_to_the_address_that_was_checked(receiver: Receiver) -> None:
    """The name is resolved once, and stands in the request as it was asked for."""
    asked = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    url = httpx.URL(receiver.url.replace("127.0.0.1", "receiver.example"))
    with Egress(LOOPBACK, resolve=resolve).client(timeout=5) as client:
        assert 204 == client.post(f"{url}/ok/host").status_code
    assert [("receiver.example", url.port)] == asked
    [request] = receiver.at("/ok/host")
    assert f"receiver.example:{url.port}" == request.headers["host"]


def test_the_next_address_is_tried(receiver: Receiver) -> None:
    """Where no server listens at the first address of a host, the second is connected to."""
    egress = Egress(LOOPBACK, resolve=lambda host, port: ["127.0.0.99", "127.0.0.1"])
    with egress.client(timeout=5) as client:
        url = receiver.url.replace("127.0.0.1", "receiver.example")
        assert 204 == client.get(f"{url}/ok").status_code


def test_the_environment_names_no_proxy(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment would connect for us, unchecked: none is used."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Egress(LOOPBACK).client(timeout=5) as client:
        assert 204 == client.get(f"{receiver.url}/ok").status_code


def test_redirects_are_the_callers_business(receiver: Receiver) -> None:
    """None is followed by itself, and one that a caller follows is checked like any other."""
    port = httpx.URL(receiver.url).port
    egress = Egress(Allowlist.parse("127.0.0.1"))
    with egress.client(timeout=5) as client:
        assert 307 == client.get(f"{receiver.url}/redirect").status_code
        followed = client.get(f"{receiver.url}/redirect", follow_redirects=True)
        assert 204 == followed.status_code
        for inner in (f"http://127.0.0.2:{port}/ok", "http://user:word@127.0.0.1/"):
            with pytest.raises(EgressRefused):
                client.get(f"{receiver.url}/redirect/{inner}", follow_redirects=True)


def test_a_body_without_end_is_cut(receiver: Receiver) -> None:
    """What is longer than was allowed is refused as soon as that is known."""
    with Egress(LOOPBACK).client(timeout=5, max_bytes=100_000) as client:
        with pytest.raises(EgressRefused, match="longer than 100,000 bytes"):
            client.get(f"{receiver.url}/endless")
        with client.stream("GET", f"{receiver.url}/status/200") as answer:
            assert b"sorry" == answer.read()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["hang", "drip", "endless"])
def test_a_request_ends_with_its_deadline(receiver: Receiver, path: str) -> None:
    """However slowly bytes come, and however many, a request is over when its time is."""
    began = time.monotonic()
    with (
        Egress(LOOPBACK).client(timeout=5, limit=partial(Deadline, 0.3)) as client,
        pytest.raises(httpx.TimeoutException),
    ):
        client.get(f"{receiver.url}/{path}")
    assert time.monotonic() - began < 2


@pytest.mark.slow
def test_a_url_is_refused_where_its_host_is_resolved_for_long() -> None:
    """A resolver without an answer ends in an error that names the field and the host."""
    over = threading.Event()

    def silence(host: str, port: int) -> list[str]:
        over.wait(60)
        return []

    egress = Egress(Allowlist.parse(""), resolve=silence)
    with pytest.raises(InvalidParameter, match=r"^url: the host 'slow\.example' cannot be found"):
        egress.check_url("http://slow.example/", "url")
    assert not over.is_set()
    over.set()


def test_resolving_ends_with_the_deadline() -> None:
    """A resolver that says nothing is not waited for."""
    never = threading.Event()
    egress = Egress(LOOPBACK, resolve=lambda host, port: [str(never.wait(3))])
    with (
        egress.client(timeout=5, limit=partial(Deadline, 0.2)) as client,
        pytest.raises(httpx.ConnectTimeout),
    ):
        client.get("http://receiver.example/")
    never.set()


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port of an https server that is ``good.example``, and a context that trusts it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate = _certificate(folder, "good.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *args: object) -> None:
            pass  # a client that does not trust the certificate hangs up

        def get_request(self):  # type: ignore[no-untyped-def]
            connection, address = super().get_request()
            return context.wrap_socket(connection, server_side=True), address

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_port, ssl.create_default_context(cafile=str(certificate))
    server.shutdown()
    thread.join()
    server.server_close()


def _certificate(folder: Path, host: str) -> Path:
    """A certificate of a host that it signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


def test_certificates_are_those_of_the_name(secured: tuple[int, ssl.SSLContext]) -> None:
    """The connection goes to a checked address, and its certificate has to be the host's name's."""
    port, trusting = secured
    egress = Egress(LOOPBACK, resolve=lambda host, port: ["127.0.0.1"], tls=trusting)
    with egress.client(timeout=5) as client:
        assert 204 == client.get(f"https://good.example:{port}/").status_code
        with pytest.raises(httpx.ConnectError, match="certificate"):
            client.get(f"https://other.example:{port}/")
    with Egress(LOOPBACK).client(timeout=5) as client, pytest.raises(httpx.ConnectError):
        client.get(f"https://localhost:{port}/")
