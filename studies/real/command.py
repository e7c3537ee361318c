"""``python -m studies real``: measure published checkpoints, family by family.

Exit status: 0 where each gate is met, 1 where one is missed, 3 where a package cannot be had or is
not the one of the manifest. The page then keeps that family's last figures and their date.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from studies.cells import FOLDER
from studies.hub import Hub
from studies.real.downloads import CACHE
from studies.real.errors import InvalidFile, Unavailable
from studies.real.families import (
    chgnet,
    mhcnuggets,
    minilm,
    ncnn,
    rotated,
    silero,
    spliceai,
    torchani,
    upscalerjs,
)
from studies.real.gates import gates_of_real
from studies.real.manifest import MANIFEST
from studies.real.packages import Packages
from studies.real.results import Result, keep, results

__all__ = ["FAMILIES", "measure"]

FAMILIES: Final[dict[str, ModuleType]] = {
    family.NAME: family
    for family in (
        torchani,
        chgnet,
        mhcnuggets,
        silero,
        ncnn,
        spliceai,
        upscalerjs,
        minilm,
        rotated,
    )
}
_MISSED: Final = 1
_UNAVAILABLE: Final = 3


def measure(
    families: Sequence[str] = (),
    cache: Path = CACHE,
    folder: Path = FOLDER,
    *,
    manifest: Path = MANIFEST,
    hub: Callable[[], Hub] = Hub,
) -> int:
    """Measure families one at a time, keep what is found, and print their gates.

    Args:
        families: their names; none for all.
        cache: the folder for packages.
        folder: for results.
        manifest: names the packages.
        hub: starts a service, once the packages of a family are there.

    Returns:
        The exit status.
    """
    found: list[Result] = []
    unavailable = False
    for name in families or FAMILIES:
        try:
            found.append(_measured(name, Packages(name, cache, manifest), folder, hub))
        except (Unavailable, InvalidFile) as error:
            unavailable = True
            print(f"{name}: {error}\n{name}: {_kept(name, folder)}", file=sys.stderr)
    gates = gates_of_real(found)
    for gate in gates:
        print(gate)
    if unavailable:
        return _UNAVAILABLE
    return 0 if all(gate.met for gate in gates) else _MISSED


def _measured(name: str, packages: Packages, folder: Path, hub: Callable[[], Hub]) -> Result:
    began = time.monotonic()
    with hub() as service:
        figures = FAMILIES[name].figures(packages, service)
    print(f"real {name}: {time.monotonic() - began:.0f} s", flush=True)
    return keep(name, packages.all, figures, folder)


def _kept(name: str, folder: Path) -> str:
    dates = [result.date for result in results(folder) if result.family == name]
    if not dates:
        return "the page has no figures of it"
    return f"the page keeps its figures of {dates[0]}"
