"""Cases of a head: its first line, the names and values of its fields, and its ``Host``."""

from __future__ import annotations

from typing import Final

from tests.app.server.reading.cases import CLOSED, HOST, KEPT, READ, SMUGGLED, Case, get, post

__all__ = ["FIELDS", "HOSTS", "INTENTS", "LINES"]


def _line(line: str) -> str:
    """A request with this first line, and another one behind it."""
    return f"{line}\r\n{HOST}\r\n\r\n"


def _hidden(line: str) -> Case:
    return Case(_line(line) + SMUGGLED, CLOSED)


LINES: Final = {
    "a path": Case(_line("GET /livez HTTP/1.1"), KEPT),
    "a query": Case(_line("GET /livez?a=b&c=%20 HTTP/1.1"), KEPT),
    "HTTP/1.0": Case(_line("GET /livez HTTP/1.0"), (200,)),
    "HTTP/1.0, kept alive": Case(
        get(HOST, "Connection: keep-alive", version="1.0") + SMUGGLED, (200,)
    ),
    "a method that nothing knows": Case(_line("FROB /livez HTTP/1.1"), (405, 200)),
    "a method in small letters": Case(_line("get /livez HTTP/1.1"), (405, 200)),
    "a method of every sign": Case(_line("!#$%&'*+-.^_`|~ /livez HTTP/1.1"), (405, 200)),
    "TRACE": Case(_line("TRACE /livez HTTP/1.1"), (405, 200)),
    "CONNECT of a path": Case(_line("CONNECT /livez HTTP/1.1"), (405, 200)),
    "CONNECT": _hidden("CONNECT localhost:80 HTTP/1.1"),
    "an asterisk": _hidden("OPTIONS * HTTP/1.1"),
    "an address of here": _hidden("GET http://localhost/livez HTTP/1.1"),
    "an address of elsewhere": _hidden("GET http://elsewhere.example/livez HTTP/1.1"),
    "an address with a user": _hidden("GET http://localhost@elsewhere.example/livez HTTP/1.1"),
    "an authority": _hidden("GET localhost/livez HTTP/1.1"),
    "a user": _hidden("GET @elsewhere.example/livez HTTP/1.1"),
    "a port": _hidden("GET :80/livez HTTP/1.1"),
    "a query alone": _hidden("GET ?/livez HTTP/1.1"),
    "a fragment": _hidden("GET /livez#/../smuggled HTTP/1.1"),
    "a backslash first": _hidden("GET \\livez HTTP/1.1"),
    "no version": _hidden("GET /livez"),
    "HTTP/0.9": _hidden("GET /livez HTTP/0.9"),
    "HTTP/1.2": _hidden("GET /livez HTTP/1.2"),
    "HTTP/2.0": _hidden("GET /livez HTTP/2.0"),
    "HTTP/3.0": _hidden("GET /livez HTTP/3.0"),
    "HTTP/1": _hidden("GET /livez HTTP/1"),
    "HTTP/1.10": _hidden("GET /livez HTTP/1.10"),
    "HTTP/01.1": _hidden("GET /livez HTTP/01.1"),
    "HTTP/1,1": _hidden("GET /livez HTTP/1,1"),
    "a version in small letters": _hidden("GET /livez http/1.1"),
    "another protocol": _hidden("GET /livez ICY/1.1"),
    "the preface of HTTP/2": Case("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLOSED),
    "two spaces before the path": _hidden("GET  /livez HTTP/1.1"),
    "two spaces behind the path": _hidden("GET /livez  HTTP/1.1"),
    "a space in the path": _hidden("GET /live z HTTP/1.1"),
    "a space behind the version": _hidden("GET /livez HTTP/1.1 "),
    "a space before the method": _hidden(" GET /livez HTTP/1.1"),
    "tabs": _hidden("GET\t/livez\tHTTP/1.1"),
    "a vertical tab": _hidden("GET\v/livez HTTP/1.1"),
    "a carriage return in the path": _hidden("GET /livez\r HTTP/1.1"),
    "a carriage return behind the version": _hidden("GET /livez HTTP/1.1\r"),
    "a line feed behind the version": Case(f"GET /livez HTTP/1.1\n{HOST}\r\n\r\n", CLOSED),
    "line feeds alone": Case(f"GET /livez HTTP/1.1\n{HOST}\n\n{SMUGGLED}", CLOSED),
    "a line feed at the end": Case(f"GET /livez HTTP/1.1\r\n{HOST}\r\n\n{SMUGGLED}", CLOSED),
    "an empty line before": Case("\r\n" + get(HOST), CLOSED),
    "a line feed before": Case("\n" + get(HOST), CLOSED),
    "NUL in the path": _hidden("GET /livez\0 HTTP/1.1"),
    "DEL in the path": _hidden("GET /livez\x7f HTTP/1.1"),
    "a byte above ASCII": _hidden("GET /livez\xff HTTP/1.1"),
    "UTF-8": _hidden("GET /livez\xc3\xa9 HTTP/1.1"),
    "no method": _hidden("/livez HTTP/1.1"),
    "a method with a colon": _hidden("GET: /livez HTTP/1.1"),
    "a path of 100,000 bytes": Case(_line(f"GET /{'a' * 100_000} HTTP/1.1"), CLOSED),
    "a method of 100,000 bytes": Case(_line(f"{'A' * 100_000} /livez HTTP/1.1"), CLOSED),
    "TLS": Case("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", CLOSED),
}


def _field(line: str) -> Case:
    return Case(get(HOST, line) + SMUGGLED, CLOSED)


FIELDS: Final = {
    "an empty value": Case(get(HOST, "X:"), KEPT),
    "no space": Case(get(HOST, "X:y"), KEPT),
    "a tab in a value": Case(get(HOST, "X: a\tb"), KEPT),
    "a byte above ASCII in a value": Case(get(HOST, "X: \xff\xfe"), KEPT),
    "a name of every sign": Case(get(HOST, "!#$%&'*+-.^_`|~: y"), KEPT),
    "a space before a colon": _field("X : y"),
    "a tab before a colon": _field("X\t: y"),
    "a space in a name": _field("X Y: z"),
    "no name": _field(": y"),
    "no colon": _field("X"),
    "NUL in a name": _field("X\0: y"),
    "a byte above ASCII in a name": _field("X\xe9: y"),
    "parentheses in a name": _field("X(y): z"),
    "a slash in a name": _field("X/Y: z"),
    "a carriage return in a name": _field("X\r: y"),
    "NUL in a value": _field("X: a\0b"),
    "a carriage return in a value": _field("X: a\rb"),
    "a carriage return at the end of a value": _field("X: a\r"),
    "a line feed in a value": _field("X: a\nb"),
    "a field behind a line feed": _field("X: a\nContent-Length: 44"),
    "an escape in a value": _field("X: a\x1bb"),
    "DEL in a value": _field("X: a\x7fb"),
    "a vertical tab in a value": _field("X: a\vb"),
    "a line that goes on": _field("X: a\r\n b"),
    "a line that goes on with a tab": _field("X: a\r\n\tb"),
    "a line of spaces": _field("X: a\r\n  "),
    "a space before the first field": Case(get(" X: y", HOST) + SMUGGLED, CLOSED),
    "a first line that goes on": Case(get(" HTTP/1.1", HOST) + SMUGGLED, CLOSED),
    "100,000 bytes": _field(f"X: {'y' * 100_000}"),
    "20,000 fields": _field("\r\n".join(["X: y"] * 20_000)),
}


def _host(value: str, *answered: int) -> Case:
    """A question for this host; by default it is no name and port."""
    return Case(get(f"Host: {value}"), answered or (421, 200))


HOSTS: Final = {
    "a name": _host("models.example.com", *KEPT),
    "a name and a port": _host("models.example.com:8000", *KEPT),
    "capitals": _host("LOCALHOST:8000", *KEPT),
    "a dot at the end": _host("models.example.com.", *KEPT),
    "an underscore": _host("my_service:8000", *KEPT),
    "a hyphen": _host("my-service-0.svc", *KEPT),
    "an address": _host("10.1.2.3:8000", *KEPT),
    "an address of IPv6": _host("[fd00::1]:8000", *KEPT),
    "one without a port": _host("[::1]", *KEPT),
    "one with an address of IPv4": _host("[::ffff:10.1.2.3]", *KEPT),
    "a colon without a port": _host("localhost:", *KEPT),
    "none in HTTP/1.0": Case(get(version="1.0"), (200,)),
    "an empty one": _host(""),
    "an empty one in HTTP/1.0": Case(get("Host:", version="1.0"), (421,)),
    "a port alone": _host(":8000"),
    "a path": _host("localhost/"),
    "a path and a user": _host("localhost/@evil"),
    "a path and a user in HTTP/1.0": Case(get("Host: localhost/@evil", version="1.0"), (421,)),
    "one of a method that nothing knows": Case(
        get("Host: localhost/@evil", method="FROB"), (421, 200)
    ),
    "one where nothing is": Case(get("Host: localhost/@evil", target="/nowhere"), (421, 200)),
    "a user": _host("evil@localhost"),
    "a user and a password": _host("a:b@localhost"),
    "a user behind a port": _host("localhost:80@evil"),
    "a scheme": _host("http://localhost"),
    "a query": _host("localhost?a"),
    "a fragment": _host("localhost#a"),
    "a backslash": _host("localhost\\evil"),
    "a space": _host("local host"),
    "a tab": _host("local\thost"),
    "two names": _host("localhost, evil.example"),
    "a comma at the end": _host("localhost,"),
    "a semicolon": _host("localhost;evil"),
    "quotes": _host('"localhost"'),
    "angles": _host("<localhost>"),
    "percents": _host("%6cocalhost"),
    "a percent": _host("localhost%00.evil"),
    "an asterisk": _host("*"),
    "a dollar": _host("${x}"),
    "bytes above ASCII": _host("l\xf6calhost"),
    "digits of another script": _host("localhost:٨".encode().decode("latin-1")),
    "a port of letters": _host("localhost:http"),
    "a port with a sign": _host("localhost:+80"),
    "a port beyond the last": _host("localhost:65536"),
    "a port of six digits": _host("localhost:000080"),
    "two ports": _host("localhost:80:80"),
    "IPv6 without brackets": _host("::1"),
    "IPv6 that does not end": _host("[::1"),
    "IPv6 that does not begin": _host("::1]"),
    "IPv6 that is none": _host("[::1::2]"),
    "IPv6 of letters": _host("[evil]"),
    "IPv6 with a zone": _host("[fe80::1%25eth0]"),
    "text behind IPv6": _host("[::1]evil"),
    "IPv4 in brackets": _host("[127.0.0.1]"),
    "a label without letters": _host("a..b"),
    "a dot first": _host(".localhost"),
    "a dot alone": _host("."),
    "a name of 300 bytes": _host("a" * 300),
    "none": Case(get() + SMUGGLED, CLOSED),
    "two": Case(get(HOST, HOST) + SMUGGLED, CLOSED),
    "two that differ": Case(get(HOST, "Host: evil.example") + SMUGGLED, CLOSED),
    "two in HTTP/1.0": Case(get(HOST, HOST, version="1.0") + SMUGGLED, CLOSED),
    "one that goes on": Case(get("Host: localhost", " .evil.example") + SMUGGLED, CLOSED),
    "one with a space before its colon": Case(get("Host : localhost") + SMUGGLED, CLOSED),
    "one beside an address": Case(
        get("Host: localhost", target="http://evil.example/livez") + SMUGGLED, CLOSED
    ),
}


def _upgrade(to: str, *fields: str) -> list[str]:
    return [f"Upgrade: {to}", "Connection: Upgrade, HTTP2-Settings", *fields]


_N: Final = f"Content-Length: {len(SMUGGLED)}"

INTENTS: Final = {
    "a body that waits for consent": Case(post("Expect: 100-continue", _N), (100, *READ)),
    "another expectation": Case(post("Expect: 200-ok", _N), READ),
    "consent in HTTP/1.0": Case(post("Expect: 100-continue", _N, version="1.0"), (401,)),
    "HTTP/2 in clear text": Case(get(HOST, *_upgrade("h2c", "HTTP2-Settings: AAMA")), KEPT),
    "HTTP/2 with a body": Case(post(*_upgrade("h2c", _N)), READ),
    "HTTP/2 with chunks": Case(
        post(*_upgrade("h2c", "Transfer-Encoding: chunked"), body="0\r\n\r\n"), READ
    ),
    "HTTP/2 with both lengths": Case(
        post(*_upgrade("h2c", _N, "Transfer-Encoding: chunked")), CLOSED
    ),
    "a WebSocket": Case(
        get(HOST, *_upgrade("websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")),
        KEPT,
    ),
    "a WebSocket with a body": Case(post(*_upgrade("websocket", _N)), READ),
    "the last request": Case(get(HOST, "Connection: close") + SMUGGLED, (200,)),
    "the last request, with a body": Case(post("Connection: close", _N), (401,)),
    "a connection of fields of the length": Case(
        post("Connection: Content-Length, Transfer-Encoding", _N), READ
    ),
    "a proxy that is asked to go on": Case(get(HOST, "Proxy-Connection: keep-alive"), KEPT),
    "another method in a field": Case(post("X-HTTP-Method-Override: GET", _N), READ),
    "another path in a field": Case(get(HOST, "X-Original-URL: /smuggled"), KEPT),
    "another host in a field": Case(get(HOST, "X-Forwarded-Host: localhost/@evil"), KEPT),
    "three requests at once": Case(get(HOST) * 3, (200, *KEPT, 200)),
    "one behind a body": Case(post(_N) + get(HOST), (401, *KEPT)),
    "one behind a refused method": Case(post(_N, method="FROB") + get(HOST), (405, *KEPT)),
}
