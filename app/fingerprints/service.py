"""The use cases of fingerprints: store, read, list and remove those of a tenant's model names.

``prepare`` does the slow work before a transaction begins; ``put`` only records its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.fingerprints import events
from app.fingerprints.finding_keys import coarse_end
from app.fingerprints.followers import Follower, Maker
from app.fingerprints.records import (
    MAX_BYTES,
    MAX_TENSORS,
    NO_FACTS,
    Facts,
    Feed,
    FingerprintPut,
    FingerprintRecord,
    PreparedFingerprint,
    StatedBy,
    Stored,
)
from app.fingerprints.repositories import feeds, fingerprints
from app.infra.db.database import Reader, Writer
from app.infra.errors import FingerprintExists
from app.infra.preconditions import Precondition
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.records import QuotaName
from app.tenancy.quotas.service import Allowance, QuotaService
from app.webhooks.outbox import Outbox
from modelkin import wire
from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.checks import Payload
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import InvalidFingerprint, ModelkinError, PayloadTooLarge
from modelkin.types.paging import Page

__all__ = ["FingerprintService"]


class FingerprintService:
    """Fingerprints of model names. They belong to a tenant, and to no space.

    Args:
        outbox: gets an event for each that is stored or removed.
        quotas: how many a tenant may have, and of how many bytes.
    """

    def __init__(self, outbox: Outbox, quotas: QuotaService) -> None:
        self._outbox = outbox
        self._quotas = quotas
        self._followers: list[Follower] = []
        self._makers: list[Maker] = []

    def follow(self, follower: Follower) -> None:
        """Have a feature that lies above this one learn of all changes."""
        self._followers.append(follower)

    def add_maker(self, maker: Maker) -> None:
        """Have a feature that makes fingerprints learn which ones clients remove."""
        self._makers.append(maker)

    # --- before a transaction -----------------------------------------------------------------

    def prepare(self, payload: bytes | Fingerprint) -> PreparedFingerprint:
        """Decode and check a fingerprint, and take the keys that it is found by.

        Raises:
            PayloadTooLarge: the payload has more than 4 MiB.
            InvalidFingerprint: it is none, of another scheme, or of more than 20,000 tensors.
        """
        data = payload.to_bytes() if isinstance(payload, Fingerprint) else bytes(payload)
        if isinstance(payload, Fingerprint):
            found = payload
            _require_few_bytes(data)
            _require_few_tensors(found)
        else:
            found = self.decode(data)
        finding_scale, finding_keys = coarse_end(found)
        return PreparedFingerprint(
            data=data,
            scale=found.scale,
            digest=codec.declared_digest(data),
            tensors=len(found.tensors),
            keys=int(found.keys.size),
            lines=dict(found.lines),
            parameters=sum(tensor.size for tensor in found.tensors),
            finding_scale=finding_scale,
            finding_keys=finding_keys,
        )

    def decode(self, payload: Payload) -> Fingerprint:
        """A fingerprint that a client sent, whether it is to be stored or not.

        Raises: as :meth:`prepare`.
        """
        _require_few_bytes(payload)
        return wire.decode_fingerprint(payload, max_tensors=MAX_TENSORS)

    # --- reading ------------------------------------------------------------------------------

    def get(self, session: Reader, tenant: Tenant, name: str) -> FingerprintRecord:
        """The fingerprint of a model name.

        Raises:
            FingerprintNotFound: the name has none.
        """
        found = self.find(session, tenant, name)
        if found is None:
            raise fingerprints.missing_fingerprint(session, tenant.id, name)
        return found

    def find(self, session: Reader, tenant: Tenant, name: str) -> FingerprintRecord | None:
        """The fingerprint of a model name; None if it has none."""
        return self.find_many(session, tenant, [name]).get(name)

    def find_many(
        self, session: Reader, tenant: Tenant, names: Iterable[str]
    ) -> dict[str, FingerprintRecord]:
        """The fingerprints of the names that have one, by name."""
        return fingerprints.find_many(session, tenant.id, names)

    def by_ids(
        self, session: Reader, tenant: Tenant, ids: Iterable[int]
    ) -> dict[int, FingerprintRecord]:
        """The tenant's existing fingerprints among ``ids``, by id."""
        return fingerprints.by_ids(session, tenant.id, ids)

    def feed(self, session: Reader, tenant_id: int) -> Feed:
        """The state of a tenant's fingerprints as the transaction sees them."""
        return feeds.read_feed(session, tenant_id)

    def names_declaring(
        self, session: Reader, tenant: Tenant, base: str, *, limit: int
    ) -> list[str]:
        """The names of the fingerprints that declare a base, maybe beside others."""
        return fingerprints.names_declaring(session, tenant.id, base, limit=limit)

    def payload(self, session: Reader, record: FingerprintRecord) -> bytes:
        """The payload of a fingerprint as it was stored.

        Raises:
            FingerprintNotFound: it was removed since its record was read.
        """
        found = fingerprints.payloads(session, [record.id]).get(record.id)
        if found is None:
            raise fingerprints.missing_fingerprint(session, record.tenant_id, record.name)
        return found

    def read(self, session: Reader, record: FingerprintRecord) -> Fingerprint:
        """The fingerprint itself, in its present state.

        Raises:
            FingerprintNotFound: it was removed since its record was read.
        """
        return wire.decode_fingerprint(self.payload(session, record))

    def read_many(self, session: Reader, ids: Iterable[int]) -> dict[int, Fingerprint]:
        """The existing fingerprints among ``ids``, which the caller has from the tenant's records.

        All are held at once: some 200 kB each, and 32 MiB at the most.
        """
        return {
            fingerprint_id: wire.decode_fingerprint(data)
            for fingerprint_id, data in fingerprints.payloads(session, ids).items()
        }

    def list(
        self,
        session: Reader,
        tenant: Tenant,
        *,
        limit: int,
        cursor: str | None = None,
        prefix: str | None = None,
        stated_by: StatedBy | None = None,
    ) -> Page[FingerprintRecord]:
        """List the tenant's fingerprints by name.

        Args:
            prefix: only names that begin so.
            stated_by: only those of hubs, or of clients.
        """
        return fingerprints.list_fingerprints(
            session, tenant.id, limit=limit, cursor=cursor, prefix=prefix, stated_by=stated_by
        )

    # --- changing -----------------------------------------------------------------------------

    def put(
        self,
        session: Writer,
        tenant: Tenant,
        name: str,
        prepared: PreparedFingerprint,
        *,
        stated_by: StatedBy,
        facts: Facts = NO_FACTS,
        source_id: str | None = None,
        hub_revision: str | None = None,
        precondition: Precondition | None = None,
    ) -> Stored:
        """Store the fingerprint of a model name, with the statements about it.

        The same fingerprint and statements again change nothing. What the service made from a hub's
        file stays: a client may send the same, and no other.

        Raises:
            FingerprintExists: a client sent another one than that of a hub's file.
            PreconditionFailed: the present one does not meet ``precondition``.
            QuotaExceeded: the tenant has as many as it may, or of as many bytes.
        """
        put = FingerprintPut(
            name, prepared, stated_by, facts, source_id, hub_revision, precondition
        )
        [stored] = self.put_each(session, tenant, [put])
        if isinstance(stored, ModelkinError):
            raise stored
        return stored

    def put_each(
        self, session: Writer, tenant: Tenant, puts: Sequence[FingerprintPut]
    ) -> Sequence[Stored | ModelkinError]:
        """Store fingerprints in order; return errors of :meth:`put` in their place.

        A refused put does not affect the others, and all new ones together take as many statements
        as one.
        """
        room = self._room(session, tenant, feeds.lock_feed(session, tenant.id))
        return [
            result
            for run in _distinct_runs(puts)
            for result in self._put_run(session, tenant, run, room)
        ]

    def delete(
        self,
        session: Writer,
        tenant: Tenant,
        name: str,
        precondition: Precondition | None = None,
        *,
        by: StatedBy = "client",
    ) -> FingerprintRecord:
        """Remove the fingerprint of a model name; return what it was.

        Raises:
            FingerprintNotFound: the name has none.
            PreconditionFailed: the present one does not meet ``precondition``.
        """
        for maker in self._makers if by == "client" else ():
            maker.removing(session, tenant, name)
        feeds.lock_feed(session, tenant.id)
        current = self.get(session, tenant, name)
        if precondition is not None:
            precondition(name, current.version_tag)
        for follower in self._followers:
            follower.removed(session, tenant, current)
        version = feeds.advance(session, tenant.id, fingerprints=-1, size=-current.size)
        fingerprints.delete_fingerprint(session, current, version=version)
        events.fingerprint_removed(self._outbox, session, tenant, current)
        return current

    # --- parts --------------------------------------------------------------------------------

    def _room(self, session: Writer, tenant: Tenant, feed: Feed) -> Allowance:
        """The room that is left to a tenant. The lock of its feed keeps others from taking it."""
        used: dict[QuotaName, int] = {
            "fingerprints": feed.fingerprints,
            "fingerprint_bytes": feed.bytes,
        }
        return self._quotas.allowance_of(session, tenant.id, used)

    def _put_run(
        self, session: Writer, tenant: Tenant, puts: Sequence[FingerprintPut], room: Allowance
    ) -> Sequence[Stored | ModelkinError]:
        """Store fingerprints of distinct names. The caller holds the lock of the feed."""
        known = self.find_many(session, tenant, [put.name for put in puts])
        results: dict[str, Stored | ModelkinError] = {}
        new: list[FingerprintPut] = []
        changes: list[tuple[FingerprintRecord, FingerprintPut]] = []
        for put in puts:
            current = known.get(put.name)
            try:
                _require_allowed(put, current)
                _take_room(room, put, current)
            except ModelkinError as error:
                results[put.name] = error
                continue
            if current is None:
                new.append(put)
            elif _says_the_same(put, current):
                results[put.name] = Stored(current, False, False, is_written=False)
            else:
                changes.append((current, put))
        written = list(self._write(session, tenant, new, changes))
        results.update((stored.record.name, stored) for stored in written)
        self._tell(session, tenant, written)
        events.lines_changed(self._outbox, session, tenant, [each.record for each in written])
        return [results[put.name] for put in puts]

    def _tell(self, session: Writer, tenant: Tenant, written: Sequence[Stored]) -> None:
        changed = [each.record for each in written if each.changed]
        restated = [each.record for each in written if each.restated and not each.changed]
        redeclared = [each.record for each in written if each.redeclared and not each.changed]
        events.fingerprints_stored(self._outbox, session, tenant, changed)
        for follower in self._followers:
            follower.changed(session, tenant, changed)
            follower.restated(session, tenant, restated)
            follower.redeclared(session, tenant, redeclared)

    def _write(
        self,
        session: Writer,
        tenant: Tenant,
        new: Sequence[FingerprintPut],
        changes: Sequence[tuple[FingerprintRecord, FingerprintPut]],
    ) -> Iterator[Stored]:
        if not new and not changes:
            return
        count = len(new) + len(changes)
        size = sum(len(put.content.data) for put in new) + sum(
            len(put.content.data) - current.size
            for current, put in changes
            if put.content.digest != current.digest
        )
        last = feeds.advance(session, tenant.id, by=count, fingerprints=len(new), size=size)
        first = last - count + 1
        if new:
            for record in fingerprints.insert_fingerprints(session, tenant.id, new, version=first):
                yield Stored(record, created=True, changed=True)
        if changes:
            numbered = [(*each, first + len(new) + at) for at, each in enumerate(changes)]
            written = fingerprints.update_fingerprints(session, numbered)
            for (before, _), record in zip(changes, written, strict=True):
                changed = record.digest != before.digest
                restated = record.stated_by != before.stated_by
                yield Stored(record, False, changed, restated, record.descent != before.descent)


def _require_few_bytes(data: Payload) -> None:
    if len(data) > MAX_BYTES:
        raise PayloadTooLarge(
            f"a fingerprint may have {MAX_BYTES:,} bytes, and this one has {len(data):,}: take a "
            f"coarser scale, by Fingerprint.at"
        )


def _require_few_tensors(fingerprint: Fingerprint) -> None:
    names = sum(len(tensor.names) for tensor in fingerprint.tensors)
    if names > MAX_TENSORS:
        raise InvalidFingerprint(
            f"tensors: this fingerprint has {names:,}, and 1 to {MAX_TENSORS:,} are allowed: make "
            f"a fingerprint of each of its parts",
            field="tensors",
        )


def _distinct_runs(puts: Iterable[FingerprintPut]) -> Iterator[list[FingerprintPut]]:
    """Runs of distinct names: the second of two puts must see the result of the first."""
    run: dict[str, FingerprintPut] = {}
    for put in puts:
        if put.name in run:
            yield list(run.values())
            run = {}
        run[put.name] = put
    if run:
        yield list(run.values())


def _require_allowed(put: FingerprintPut, current: FingerprintRecord | None) -> None:
    if put.precondition is not None:
        put.precondition(put.name, None if current is None else current.version_tag)
    if current is None or put.stated_by == "hub" or current.stated_by == "client":
        return
    if put.content.digest != current.digest:
        raise FingerprintExists(
            f"the service made the fingerprint of {put.name!r} from a hub's file, and this one is "
            f"another: give the model another name, or remove that one first"
        )


def _take_room(room: Allowance, put: FingerprintPut, current: FingerprintRecord | None) -> None:
    size = len(put.content.data)
    if current is None:
        room.take(fingerprints=1, fingerprint_bytes=size)
    elif put.content.digest != current.digest:
        room.take(fingerprint_bytes=size - current.size)


def _says_the_same(put: FingerprintPut, current: FingerprintRecord) -> bool:
    """Whether a put changes nothing: what the service read itself stays as it was read."""
    if put.content.digest != current.digest:
        return False
    if put.stated_by == "client" and current.stated_by == "hub":
        return True
    ours = current.stated_by, current.facts, current.source_id, current.hub_revision
    return ours == (put.stated_by, put.facts, put.source_id, put.hub_revision)
