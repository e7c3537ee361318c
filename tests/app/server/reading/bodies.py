"""Cases of the length of a body: ``Content-Length``, ``Transfer-Encoding``, chunks, trailers."""

from __future__ import annotations

from typing import Final

from tests.app.server.reading.cases import (
    CLOSED,
    HOST,
    KEPT,
    READ,
    SMUGGLED,
    Case,
    chunked,
    get,
    post,
)

__all__ = ["CHUNKS", "CODINGS", "LENGTHS", "TRAILERS"]

N: Final = len(SMUGGLED)
END: Final = "0\r\n\r\n"


def _length(value: str) -> str:
    return post(f"Content-Length: {value}")


LENGTHS: Final = {
    "a length": Case(_length(f"{N}"), READ),
    "the same length twice": Case(post(f"Content-Length: {N}", f"Content-Length: {N}"), READ),
    "a list of the same length": Case(_length(f"{N}, {N}"), READ),
    "leading zeros": Case(_length(f"00{N}"), READ),
    "tabs around it": Case(_length(f"\t{N}\t"), READ),
    "another case of its name": Case(post(f"cOnTENT-lENGTH: {N}"), READ),
    "a body of a GET": Case(get(HOST, f"Content-Length: {N}") + SMUGGLED, KEPT),
    "a body of a HEAD": Case(get(HOST, f"Content-Length: {N}", method="HEAD") + SMUGGLED, KEPT),
    "no body": Case(post("Content-Length: 0", body=""), READ),
    "no length": Case(post(body=""), READ),
    "two lengths": Case(post("Content-Length: 0", f"Content-Length: {N}"), CLOSED),
    "two lengths, the long one first": Case(
        post(f"Content-Length: {N}", "Content-Length: 0"), CLOSED
    ),
    "two lengths that are equal numbers": Case(
        post(f"Content-Length: {N}", f"Content-Length: 0{N}"), CLOSED
    ),
    "a list of two lengths": Case(_length(f"0, {N}"), CLOSED),
    "a list that ends with a comma": Case(_length(f"{N},"), CLOSED),
    "a list that begins with a comma": Case(_length(f",{N}"), CLOSED),
    "lengths apart by a space": Case(_length(f"{N} {N}"), CLOSED),
    "an empty length": Case(_length(""), CLOSED),
    "an empty length beside one": Case(post("Content-Length:", f"Content-Length: {N}"), CLOSED),
    "a plus": Case(_length(f"+{N}"), CLOSED),
    "a minus": Case(_length(f"-{N}"), CLOSED),
    "minus nothing": Case(_length("-0"), CLOSED),
    "a hexadecimal length": Case(_length(f"0x{N:x}"), CLOSED),
    "hexadecimal digits": Case(_length("2c"), CLOSED),
    "an octal length": Case(_length(f"0o{N:o}"), CLOSED),
    "an underscore between digits": Case(_length("4_4"), CLOSED),
    "a space between digits": Case(_length("4 4"), CLOSED),
    "a fraction": Case(_length(f"{N}.0"), CLOSED),
    "an exponent": Case(_length("4e1"), CLOSED),
    "a length in quotes": Case(_length(f'"{N}"'), CLOSED),
    "a length with a parameter": Case(_length(f"{N};q=1"), CLOSED),
    "Arabic digits": Case(_length("٤٤".encode().decode("latin-1")), CLOSED),
    "a superscript": Case(_length("4\xb2"), CLOSED),
    "a space that does not break": Case(_length(f"\xa0{N}"), CLOSED),
    "a vertical tab before it": Case(_length(f"\v{N}"), CLOSED),
    "a form feed behind it": Case(_length(f"{N}\f"), CLOSED),
    "NUL behind it": Case(_length(f"{N}\0"), CLOSED),
    "a number of 64 bits and one": Case(_length("18446744073709551660"), (413,), ends=True),
    "a number of 21 digits": Case(_length("1" + "0" * 20), CLOSED),
    "a number of 5,000 digits": Case(_length("0" * 5000 + f"{N}"), CLOSED),
    "text": Case(_length("many"), CLOSED),
    "an underscore in its name": Case(post(f"Content_Length: {N}"), CLOSED),
    "an underscore in its name, beside one": Case(
        post(f"Content_Length: {N}", "Content-Length: 0"), CLOSED
    ),
    "a space before its colon": Case(post(f"Content-Length : {N}"), CLOSED),
    "a tab before its colon": Case(post(f"Content-Length\t: {N}"), CLOSED),
    "a space before its name": Case(post(f" Content-Length: {N}"), CLOSED),
    "a length on the next line": Case(post("Content-Length:", f" {N}"), CLOSED),
    "digits on the next line": Case(post("Content-Length: 4", " 4"), CLOSED),
    "less than is sent": Case(post("Content-Length: 2", body="ok" + "0\r\n"), (401, 400)),
    "more than is sent": Case(post(f"Content-Length: {N + 1}"), (), ends=True),
    "a length of HTTP/1.0": Case(post(f"Content-Length: {N}", version="1.0"), (401,)),
    "of a method that nothing knows": Case(post(f"Content-Length: {N}", method="FROB"), (405, 200)),
    "two, of such a method": Case(
        post("Content-Length: 0", f"Content-Length: {N}", method="FROB"), CLOSED
    ),
}


def _coded(*codings: str, body: str = END + SMUGGLED) -> str:
    return post(*(f"Transfer-Encoding: {coding}" for coding in codings), body=body)


def _both(method: str, first: str, second: str, body: str) -> str:
    return post(first, second, method=method, body=body)


_CHUNKED: Final = "Transfer-Encoding: chunked"
_WHOLE: Final = f"Content-Length: {len(END) + N}"

CODINGS: Final = {
    "chunks": Case(_coded("chunked", body=END), READ),
    "another case": Case(_coded("CHUNKED", body=END), READ),
    "a tab before it": Case(_coded("\tchunked", body=END), READ),
    "a space and a tab behind it": Case(_coded("chunked \t", body=END), READ),
    "of a method that nothing knows": Case(post(_CHUNKED, method="FROB", body=END), (405, 200)),
    "chunked twice": Case(_coded("chunked", "chunked"), CLOSED),
    "chunked twice in a list": Case(_coded("chunked, chunked"), CLOSED),
    "chunked, identity": Case(_coded("chunked, identity"), CLOSED),
    "identity, chunked": Case(_coded("identity, chunked"), CLOSED),
    "identity and chunked": Case(_coded("identity", "chunked"), CLOSED),
    "chunked and identity": Case(_coded("chunked", "identity"), CLOSED),
    "gzip, chunked": Case(_coded("gzip, chunked"), CLOSED),
    "chunked, gzip": Case(_coded("chunked, gzip"), CLOSED),
    "identity": Case(_coded("identity", body=SMUGGLED), CLOSED),
    "gzip": Case(_coded("gzip", body=SMUGGLED), CLOSED),
    "xchunked": Case(_coded("xchunked"), CLOSED),
    "chunkedx": Case(_coded("chunkedx"), CLOSED),
    "chunk": Case(_coded("chunk"), CLOSED),
    "x chunked": Case(_coded("x chunked"), CLOSED),
    "a comma behind it": Case(_coded("chunked,"), CLOSED),
    "a comma before it": Case(_coded(",chunked"), CLOSED),
    "a semicolon behind it": Case(_coded("chunked;"), CLOSED),
    "a parameter": Case(_coded("chunked;q=1"), CLOSED),
    "quotes": Case(_coded('"chunked"'), CLOSED),
    "an apostrophe": Case(_coded("'chunked'"), CLOSED),
    "nothing": Case(_coded(""), CLOSED),
    "a vertical tab before it": Case(_coded("\vchunked"), CLOSED),
    "a form feed before it": Case(_coded("\fchunked"), CLOSED),
    "NUL behind it": Case(_coded("chunked\0"), CLOSED),
    "a byte above ASCII behind it": Case(_coded("chunked\xff"), CLOSED),
    "the Kelvin sign": Case(_coded("chun\u212aed".encode().decode("latin-1")), CLOSED),
    "on the next line": Case(post("Transfer-Encoding:", " chunked", body=END + SMUGGLED), CLOSED),
    "a coding on the next line": Case(
        post("Transfer-Encoding: chunked", " , identity", body=END + SMUGGLED), CLOSED
    ),
    "a carriage return before it": Case(_coded("\rchunked"), CLOSED),
    "behind a line feed alone": Case(
        post("X: y\nTransfer-Encoding: chunked", body=END + SMUGGLED), CLOSED
    ),
    "an underscore in its name": Case(
        post("Transfer_Encoding: chunked", body=END + SMUGGLED), CLOSED
    ),
    "a space before its colon": Case(
        post("Transfer-Encoding : chunked", body=END + SMUGGLED), CLOSED
    ),
    "a space before its name": Case(
        post(" Transfer-Encoding: chunked", body=END + SMUGGLED), CLOSED
    ),
    "in HTTP/1.0": Case(post(_CHUNKED, version="1.0", body=END + SMUGGLED), CLOSED),
    "in HTTP/1.0, kept alive": Case(
        post(_CHUNKED, "Connection: keep-alive", version="1.0", body=END + SMUGGLED), CLOSED
    ),
    "TE, which is no coding of this body": Case(
        post("TE: chunked", "Content-Length: 0", body=""), READ
    ),
    **{
        f"{method} with a length {where} chunks, {what}": Case(_both(method, *order, body), CLOSED)
        for method in ("POST", "GET", "FROB", "HEAD")
        for where, order in (("before", (_WHOLE, _CHUNKED)), ("behind", (_CHUNKED, _WHOLE)))
        for what, body in (("both whole", END + SMUGGLED), ("a chunk begun", "0;" + SMUGGLED))
    },
    "a length of none beside chunks": Case(
        _both("POST", "Content-Length: 0", _CHUNKED, END + SMUGGLED), CLOSED
    ),
    "a length of the first digits beside chunks": Case(
        _both("POST", "Content-Length: 4", _CHUNKED, f"{N:x}\r\n{SMUGGLED}\r\n{END}"), CLOSED
    ),
    "both in HTTP/1.0": Case(post(_WHOLE, _CHUNKED, version="1.0", body=END + SMUGGLED), CLOSED),
}


def _sized(size: str) -> str:
    """A chunk of the smuggled request, with this line of its size."""
    return chunked(f"{size}{SMUGGLED}\r\n{END}")


CHUNKS: Final = {
    "small letters": Case(_sized(f"{N:x}\r\n"), READ),
    "capitals": Case(_sized(f"{N:X}\r\n"), READ),
    "leading zeros": Case(_sized(f"000{N:x}\r\n"), READ),
    "an extension": Case(_sized(f"{N:x};name=value\r\n"), READ),
    "an extension in quotes": Case(_sized(f'{N:x};name="a;b"\r\n'), READ),
    "two chunks": Case(chunked(f"2\r\nke\r\n2\r\ny=\r\n{END}"), READ),
    "a last chunk of many zeros": Case(chunked("00000\r\n\r\n"), READ),
    "an extension of the last chunk": Case(chunked("0;a=b\r\n\r\n"), READ),
    "a body that looks like chunks": Case(chunked(f"5\r\n{END}\r\n{END}"), READ),
    "no size": Case(_sized("\r\n"), CLOSED),
    "an extension alone": Case(_sized(";a=b\r\n"), CLOSED),
    "no hexadecimal digit": Case(_sized("xyz\r\n"), CLOSED),
    "a plus": Case(_sized(f"+{N:x}\r\n"), CLOSED),
    "a minus": Case(_sized(f"-{N:x}\r\n"), CLOSED),
    "minus nothing": Case(chunked(f"-0\r\n\r\n{SMUGGLED}"), CLOSED),
    "0x": Case(_sized(f"0x{N:x}\r\n"), CLOSED),
    "an h behind it": Case(_sized(f"{N:x}h\r\n"), CLOSED),
    "an underscore": Case(_sized("2_c\r\n"), CLOSED),
    "a space before it": Case(_sized(f" {N:x}\r\n"), CLOSED),
    "a space between digits": Case(_sized("2 c\r\n"), CLOSED),
    "a fraction": Case(_sized(f"{N:x}.0\r\n"), CLOSED),
    "a comma": Case(_sized(f"{N:x},0\r\n"), CLOSED),
    "Arabic digits": Case(_sized("٢".encode().decode("latin-1") + "\r\n"), CLOSED),
    "NUL": Case(_sized(f"{N:x}\0\r\n"), CLOSED),
    "a vertical tab": Case(_sized(f"{N:x}\v\r\n"), CLOSED),
    "21 digits": Case(_sized("0" * 19 + f"{N:x}\r\n"), CLOSED),
    "more than 64 bits": Case(_sized("1" + "0" * 15 + f"{N:x}\r\n"), (), ends=True),
    "an extension without an end": Case(chunked("2;" + "a" * 100_000), CLOSED, ends=True),
    "a line feed alone": Case(_sized(f"{N:x}\n"), CLOSED),
    "a carriage return alone": Case(_sized(f"{N:x}\r"), CLOSED),
    "two carriage returns": Case(_sized(f"{N:x}\r\r\n"), CLOSED),
    "a line feed in an extension": Case(_sized(f"{N:x};a\nb\r\n"), CLOSED),
    "a carriage return in an extension": Case(_sized(f"{N:x};a\rb\r\n"), CLOSED),
    "a carriage return before the end of one": Case(_sized(f"{N:x};a\r\r\n"), CLOSED),
    "NUL in an extension": Case(_sized(f"{N:x};a\0b\r\n"), CLOSED),
    "nothing behind a chunk": Case(chunked(f"2\r\nok{END}{SMUGGLED}"), CLOSED),
    "a line feed behind a chunk": Case(chunked(f"2\r\nok\n{END}{SMUGGLED}"), CLOSED),
    "a carriage return behind a chunk": Case(chunked(f"2\r\nok\r{END}{SMUGGLED}"), CLOSED),
    "two other bytes behind a chunk": Case(chunked(f"2\r\nokXX{END}{SMUGGLED}"), CLOSED),
    "more than its size": Case(chunked(f"2\r\nokay\r\n{END}{SMUGGLED}"), CLOSED),
    "less than its size": Case(chunked(f"9\r\nokay\r\n{END}{SMUGGLED}"), CLOSED),
    "a last chunk that is missing": Case(chunked("2\r\nok\r\n"), CLOSED),
    "a last chunk that never comes": Case(chunked("2\r\nok\r\n"), (), ends=True),
    "a last chunk that ends with line feeds": Case(chunked(f"0\n\n{SMUGGLED}"), CLOSED),
    "a line feed behind the last chunk": Case(chunked(f"0\r\n\n{SMUGGLED}"), CLOSED),
    "a carriage return behind the last chunk": Case(chunked(f"0\r\n\r{SMUGGLED}"), CLOSED),
    "no chunks": Case(chunked(SMUGGLED), CLOSED),
}


def _trailed(*fields: str) -> str:
    return chunked("\r\n".join(["0", *fields, "", ""]))


TRAILERS: Final = {
    "a field": Case(_trailed("X: y"), READ),
    "a length": Case(_trailed(f"Content-Length: {N}"), READ),
    "a coding": Case(_trailed("Transfer-Encoding: identity") + SMUGGLED, CLOSED),
    "a host": Case(_trailed("Host: elsewhere.example"), READ),
    "a key": Case(_trailed("Authorization: Bearer mk_x"), READ),
    "a field that ends with a line feed": Case(chunked(f"0\r\nX: y\n\r\n{SMUGGLED}"), CLOSED),
    "two line feeds at the end": Case(chunked(f"0\r\nX: y\n\n{SMUGGLED}"), CLOSED),
    "a line feed in between": Case(_trailed("X: y\nZ: z"), CLOSED),
    "a carriage return in a value": Case(_trailed("X: y\rz"), CLOSED),
    "a line that goes on": Case(_trailed("X: y", " z"), CLOSED),
    "a line that goes on at first": Case(_trailed(" z"), CLOSED),
    "NUL": Case(_trailed("X: y\0"), CLOSED),
    "no colon": Case(_trailed("GET /smuggled HTTP/1.1", "Host: localhost"), CLOSED),
    "a space before the colon": Case(_trailed("X : y"), CLOSED),
    "an empty name": Case(_trailed(": y"), CLOSED),
    "more than a head may have": Case(_trailed("X: " + "y" * 100_000), CLOSED),
    "no end": Case(chunked("0\r\nX: y\r\n"), (), ends=True),
}
