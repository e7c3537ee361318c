"""The picture of a command, drawn by the library that its file's name asks for."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modelkin._whole_files import require_ordinary, write_whole
from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from modelkin.plots import Backend

__all__ = ["Picture"]

_BACKENDS: Final[dict[str, Backend]] = {
    ".png": "matplotlib",
    ".svg": "matplotlib",
    ".pdf": "matplotlib",
    ".html": "plotly",
}
_EXTRAS: Final = {"matplotlib": "plots", "plotly": "plotly"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A file that will hold a picture.

    Attributes:
        path: where.
        backend: the library that draws it.
    """

    path: Path
    backend: Backend

    @classmethod
    def at(cls, path: str) -> Picture:
        """The picture of a path, so that nothing is read in vain where it cannot be drawn.

        Raises:
            InvalidParameter: the name has another ending, or is a link or no ordinary file.
            MissingExtra: the library is not installed.
        """
        backend = _BACKENDS.get(Path(path).suffix.lower())
        if backend is None:
            raise InvalidParameter(
                f"--plot {path}: end the name in .png, .svg, .pdf, or .html for one that answers "
                f"the mouse"
            )
        require_ordinary(path)
        if not Path(path).parent.is_dir():
            raise InvalidParameter(f"--plot {path}: there is no folder {Path(path).parent}")
        if find_spec(backend) is None:
            raise MissingExtra(backend, _EXTRAS[backend])
        return cls(Path(path), backend)

    def draw(self, found: Anatomy, name: str) -> None:
        """Draw an anatomy, and write the file whole.

        Raises:
            OSError: the file cannot be written.
        """
        from modelkin import plots  # no command without a picture waits for it

        drawn = plots.anatomy(found, name=name, backend=self.backend)
        if self.backend == "plotly":
            write_whole(self.path, drawn.to_html(include_plotlyjs=True).encode())
            return
        data = io.BytesIO()
        drawn.figure.savefig(data, format=self.path.suffix[1:].lower(), dpi=120)
        write_whole(self.path, data.getvalue())
