"""A server by TLS, with a certificate of its own authority, that counts its connections."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["TlsServer"]


class _Handler(BaseHTTPRequestHandler):
    """Answers 200 on connections that stay open."""

    server: Any
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.requests = 0
        self.server.connections.append(self)

    def do_GET(self) -> None:
        self.requests += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """The tests count requests instead."""


class TlsServer:
    """Answers each GET with 200.

    Args:
        folder: takes the certificate.

    Attributes:
        authority: the file of the certificate.
        url: the server's address.
    """

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.authority = folder / "authority.pem"
        self.authority.write_bytes(
            made.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.authority)
        http: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http = http
        http.connections = []
        self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self.url = f"https://127.0.0.1:{self._http.server_port}"

    @property
    def requests_of_connections(self) -> list[int]:
        """The number of requests of each connection, in the order in which they were made."""
        return [connection.requests for connection in self._http.connections]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
