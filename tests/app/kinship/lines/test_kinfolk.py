"""The stored anatomies that lineages read: which of them hold."""

from __future__ import annotations

from app.anatomy.families import FamilyService
from app.anatomy.keeping import AnatomyKeeper
from app.anatomy.repositories.anatomies import Due
from app.anatomy.service import AnatomyService
from app.fingerprints.records import FingerprintRecord
from app.kinship.lines.kinfolk import Kinfolk
from tests.app.kinship.lines.conftest import Fingerprints, planted
from tests.support.fixtures import on_one_database


def has_anatomy(stored: Fingerprints, record: FingerprintRecord) -> bool:
    services = stored.app.services
    kinfolk = Kinfolk(services[FamilyService], services[AnatomyService])
    with stored.app.database.reading() as session:
        return kinfolk.summary(session, stored.app.tenant, record) is not None


@on_one_database
def test_statements_alone_leave_an_anatomy(stored: Fingerprints) -> None:
    """Other keys do not: it is made again first."""
    made = stored.put("made", planted("base")).record
    assert not has_anatomy(stored, made)
    keeper = stored.app.services[AnatomyKeeper]
    keeper.make(stored.app.tenant, Due(made.id, is_changed=True, hint=None, failures=0))
    assert has_anatomy(stored, made)
    assert has_anatomy(stored, stored.put("made", planted("base"), license="mit").record)
    assert has_anatomy(stored, stored.put("made", planted("base"), stated_by="hub").record)
    changed = stored.put("made", planted("stranger"), stated_by="hub").record
    assert not has_anatomy(stored, changed)
