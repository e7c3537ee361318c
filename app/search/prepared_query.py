"""``PreparedQuery``: a subject, with the data for comparing it with the models of its space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.models.catalog.reader import Subject
from app.models.index.cascade import Sketches
from app.models.index.sketch_file import SketchFile
from app.models.spaces.records import SpaceRecord
from app.search.constants import Constants
from app.search.sketches import SketchesOutside
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support

__all__ = ["PreparedQuery"]

_FETCH_S = 2.0
"""Seconds that an answer waits for supports that are not on this machine yet."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A subject, with the data for comparing it with the models of a space.

    Attributes:
        session: a view of the database.
        space: the space in that view.
        subject: the model or payload whose neighbours are sought.
        sketch: the subject's, if it is sharper than the signature, outside the constants.
        file: the sketches of the space on this machine.
        constants: the tensors that are left out.
        outside: the sketches of the space outside the constants; None where there are none.
        by_ranks: a function that compares supports with the subject by octaves, if requested.
        fetching: the time after which the query no longer waits for supports that this machine
            lacks.
    """

    session: Reader
    space: SpaceRecord
    subject: Subject
    sketch: Sketch | None
    file: SketchFile
    constants: Constants
    outside: SketchesOutside | None
    by_ranks: Callable[[Support], float] | None = None
    fetching: Deadline = field(default_factory=lambda: Deadline(_FETCH_S))

    @property
    def note(self) -> str | None:
        """The caveat of the space, and that signatures alone cannot leave out its constants."""
        return self.constants.note(self.space, estimated=self.subject.packed is None)

    @property
    def constant_share(self) -> float:
        """The share of the subject's indices that lies in constants."""
        return self.constants.share_of(self.subject.packed)

    @property
    def sketches(self) -> Sketches:
        """The sketches of the space, or the part of them that is compared."""
        return self.file if self.outside is None else self.outside

    def count(self, sketch: Sketch) -> tuple[int, int]:
        """How many members a sketch shares with the subject's, and how many it has itself."""
        assert self.sketch is not None
        if self.outside is not None:
            sketch = self.outside.cut(sketch)
        return self.sketch.shared(sketch), sketch.members
