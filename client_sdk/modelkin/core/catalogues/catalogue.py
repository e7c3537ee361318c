"""``Catalogue``: well-known bases by their fingerprints, in a file that needs no service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from modelkin._whole_files import WholeFile
from modelkin.core.catalogues.base import (
    Base,
    check_base,
    seconds_of,
    text_of,
    time_of,
    with_text,
)
from modelkin.core.catalogues.finding import candidates
from modelkin.core.catalogues.keeping import finding_keys, kept_of
from modelkin.core.codecs import catalogue as codec
from modelkin.core.codecs.catalogue import AGAIN, BASE, Head, refuse
from modelkin.core.codecs.checks import Payload
from modelkin.core.fingerprints.anatomy import Anatomy, anatomy_of
from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCatalogue, InvalidFingerprint, InvalidParameter

__all__ = ["Base", "Catalogue"]

_DIGEST: Final = "sha256:"

_Read = Callable[[int, int], bytes]
"""Reads so many bytes of fingerprints, from a place among them on."""


class Catalogue(Mapping[str, Base]):
    """Bases by their names, in the order of these.

        catalogue = modelkin.Catalogue.load("bases.mkct")
        print(modelkin.anatomy("model.safetensors", catalogue))

    A catalogue of a file reads what stands before the fingerprints, a fifth of it, and each
    fingerprint when it is asked for. All that is read is compared with its digest.

    Attributes:
        digest: ``sha256:`` and 64 hexadecimal digits, which bind all that it holds: whoever names
            it names the bases, what is said of them, and their fingerprints.
    """

    def __init__(self, head: Head, data: bytes, read: _Read) -> None:
        """Take a head that was decoded; see :meth:`of` and :meth:`load`."""
        self._head, self._data, self._read = head, data, read
        self._bases = _bases_of(head)
        self._numbers = {base.name: number for number, base in enumerate(self._bases)}
        ends = np.cumsum(head.table["payload"], dtype=np.int64).tolist()
        self._places = [0, *ends]
        self.digest = codec.digest_of(data)

    @classmethod
    def of(cls, bases: Iterable[tuple[Base, Fingerprint]]) -> Catalogue:
        """A catalogue of these bases, which keeps of each fingerprint as much as it has room for.

        Raises:
            InvalidCatalogue: none is given, two have one name, or a text is too long; names it.
        """
        entries = list[tuple[Base, Fingerprint, bytes]]()
        for base, fingerprint in bases:
            kept, payload = kept_of(fingerprint)
            entries.append((base.of(kept, len(payload)), kept, payload))
        return _made(entries)

    @classmethod
    def joined(cls, catalogues: Iterable[Catalogue]) -> Catalogue:
        """One of all their bases; of those of one name the last one counts.

        Raises:
            InvalidCatalogue: none has any; a fingerprint is damaged.
        """
        entries = dict[str, tuple[Base, Fingerprint, bytes]]()
        for catalogue in catalogues:
            for name, base in catalogue.items():
                payload = catalogue._payload(catalogue._numbers[name])
                entries[name] = (base, catalogue.fingerprint(name), payload)
        return _made(list(entries.values()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Catalogue:
        """The catalogue of a file, which must stay as it is while fingerprints are asked for.

        Raises:
            InvalidCatalogue: not this format, another version or scheme, truncated, damaged, or
                followed by other bytes; names the field.
            OSError: the file cannot be read.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                start = file.read(codec.HEADER_BYTES)
                sizes = codec.read_sizes(start, path.stat().st_size)
                data = start + file.read(sizes.head - len(start))
            return cls(codec.decode_head(data, sizes), data, _reader(path, sizes.head))
        except InvalidCatalogue as error:
            raise InvalidCatalogue(f"{path}: {error}", field=error.field) from None

    @classmethod
    def from_bytes(cls, data: Payload) -> Catalogue:
        """A catalogue from its native format, all of it checked.

        Raises:
            InvalidCatalogue: as :meth:`load` and :meth:`verify`.
        """
        sizes = codec.read_sizes(data[: codec.HEADER_BYTES], len(data))
        head, payloads = bytes(data[: sizes.head]), memoryview(data)[sizes.head :]
        found = cls(
            codec.decode_head(head, sizes),
            head,
            lambda begin, count: bytes(payloads[begin : begin + count]),
        )
        found.verify()
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the native format to a file, ``.mkct`` by custom.

        Raises:
            InvalidCatalogue: a fingerprint in the file that it is of cannot be read any more.
            OSError: the file cannot be written.
        """
        with WholeFile(path) as whole:
            for part in self._parts():
                whole.file.write(part)
            whole.finish()

    def to_bytes(self) -> bytes:
        """The native format, ``application/vnd.modelkin.catalogue``."""
        return b"".join(self._parts())

    def fingerprint(self, name: str) -> Fingerprint:
        """What is kept of a base's fingerprint.

        Raises:
            InvalidParameter: there is no such base.
            InvalidCatalogue: it is damaged, or the file is another one by now.
            OSError: the file cannot be read.
        """
        number = self._numbers.get(name)
        if number is None:
            raise InvalidParameter(f"the catalogue has no base {quote(name)}", field="name")
        payload = self._payload(number)
        where = f"bases[{number}]"
        try:
            found = Fingerprint.from_bytes(payload)
        except InvalidFingerprint as error:
            refuse(where, f"the fingerprint of {quote(name)}: {error}")
        base = self._bases[number]
        if found.digest != base.digest:
            refuse(
                where,
                f"the fingerprint of {quote(name)} is {found.digest}, and the table says "
                f"{base.digest}: {AGAIN}",
            )
        own = self._head.keys[self._head.owners == number]
        if base.of(found, len(payload)) != base or not np.array_equal(own, finding_keys(found)):
            refuse(where, f"what is said of {quote(name)} is not of its fingerprint: {AGAIN}")
        return found

    def verify(self) -> None:
        """Read all of it.

        Raises:
            InvalidCatalogue: a fingerprint is damaged, or not the one that the table says.
        """
        for name in self:
            self.fingerprint(name)

    def candidates(self, child: Fingerprint) -> dict[str, Fingerprint]:
        """The fingerprints of the bases with which a checkpoint has finding keys in common.

        Raises:
            InvalidCatalogue: one of them is damaged.
        """
        head = self._head
        numbers = candidates(head.keys, head.owners, len(self), child)
        names = [self._bases[number].name for number in numbers]
        return {name: self.fingerprint(name) for name in names}

    def anatomy(self, child: Fingerprint) -> Anatomy:
        """Find the bases that the tensors of a checkpoint come from.

        How many strangers would have as much in common is said of all bases, and not of those alone
        that have keys of it and are compared.

        Raises:
            InvalidCatalogue: the fingerprint of a base is damaged.
        """
        found = self.candidates(child)
        compared = [compare(child, *each) for each in found.items()]
        return anatomy_of(child, compared, asked=len(self), of_catalogue=True)

    def __getitem__(self, name: str) -> Base:
        return self._bases[self._numbers[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._bases)

    def __repr__(self) -> str:
        return f"<Catalogue of {len(self):,} bases, {self.digest[:19]}>"

    @cached_property
    def size(self) -> int:
        """The bytes of its native format."""
        return len(self._data) + int(self._places[-1])

    def _payload(self, number: int) -> bytes:
        begin, end = self._places[number : number + 2]
        return self._read(begin, end - begin)

    def _parts(self) -> Iterator[bytes]:
        yield self._data
        for number, base in enumerate(self._bases):
            payload = self._payload(number)
            if len(payload) != base.size:
                refuse(f"bases[{number}]", f"the file has no fingerprint there: {AGAIN}")
            yield payload


def _reader(path: Path, head: int) -> _Read:
    """Reads the fingerprints of a file, which stand behind so many bytes."""

    def read(begin: int, count: int) -> bytes:
        with path.open("rb") as file:
            file.seek(head + begin)
            return file.read(count)

    return read


def _made(entries: Sequence[tuple[Base, Fingerprint, bytes]]) -> Catalogue:
    """A catalogue of bases with their fingerprints and the bytes of these."""
    if not 1 <= len(entries) <= codec.MAX_BASES:
        refuse("bases", f"there are {len(entries):,}, and 1 to {codec.MAX_BASES:,} are allowed")
    ordered = sorted(entries, key=lambda entry: entry[0].name)
    names = [base.name for base, _, _ in ordered]
    twice = next((a for a, b in pairwise(names) if a == b), None)
    if twice is not None:
        refuse("bases", f"two are named {quote(twice)}: give each a name of its own")
    table = np.zeros(len(ordered), BASE)
    found = [finding_keys(fingerprint) for _, fingerprint, _ in ordered]
    for row, (base, _, payload), keys in zip(table, ordered, found, strict=True):
        check_base(base)
        if len(payload) > codec.MAX_PAYLOAD_BYTES:
            refuse("bases.payload", f"{quote(base.name)} takes {len(payload):,} bytes")
        row["digest"] = np.frombuffer(bytes.fromhex(base.digest.removeprefix(_DIGEST)), np.uint8)
        row["payload"], row["keys"], row["text"] = len(payload), keys.size, len(text_of(base))
        row["parameters"], row["file_bytes"] = base.parameters, base.file_bytes or 0
        row["published"] = seconds_of(base.published_at)
    keys = np.concatenate(found)
    owners = np.repeat(np.arange(len(ordered), dtype=np.uint32), [each.size for each in found])
    order = np.argsort(keys, kind="stable")  # so owners ascend among equal keys
    head = Head(table, [text_of(base) for base, _, _ in ordered], keys[order], owners[order])
    payloads = b"".join(payload for _, _, payload in ordered)
    return Catalogue(
        head, codec.encode_head(head), lambda begin, count: payloads[begin : begin + count]
    )


def _bases_of(head: Head) -> list[Base]:
    """The bases of a head, of which lengths and digest were checked.

    Raises:
        InvalidCatalogue: a text, a date or the order is none.
    """
    bases = list[Base]()
    rows = zip(head.table, head.texts, strict=True)
    for number, (row, text) in enumerate(rows):
        said = with_text(text, number)
        base = Base(
            said.name,
            said.url,
            said.revision,
            said.license,
            time_of(int(row["published"]), number),
            said.base_models,
            said.base_relation,
            int(row["file_bytes"]) or None,
            parameters=int(row["parameters"]),
            digest=f"{_DIGEST}{row['digest'].tobytes().hex()}",
            size=int(row["payload"]),
        )
        try:
            check_base(base)
        except InvalidCatalogue as error:
            refuse(f"bases[{number}]", f"{error}")
        if bases and base.name <= bases[-1].name:
            refuse(f"bases[{number}].name", f"{quote(base.name)} stands behind {bases[-1].name!r}")
        bases.append(base)
    return bases
