"""Packages, from a folder of this machine or from their registry; never installed.

``pip``, ``npm`` and ``apt-get`` download them, as they are configured here. Wheels alone are taken,
as pip runs code of a source distribution to read its name. What was downloaded is compared with the
manifest before it is opened.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from studies.real.errors import Unavailable
from studies.real.manifest import Package

__all__ = ["CACHE", "fetched"]

CACHE: Final = Path(__file__).resolve().parents[2] / ".studies" / "packages"
"""Beside the code, and ignored by git."""
_TIMEOUT_S: Final = 900.0
_WHEEL: Final = re.compile(r"[^-]+-[^-]+-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")
_CPYTHON: Final = re.compile(r"cp(\d)(\d+)")


def fetched(package: Package, cache: Path = CACHE) -> Path:
    """The file of a package, downloaded where the cache does not have it.

    Raises:
        Unavailable: no registry gives it, its bytes are not those of the manifest, or the cache
            cannot be read or written.
    """
    path = cache / package.file
    try:
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=cache) as folder:
                new = _downloaded(package, Path(folder))
                _check(package, new)
                new.replace(path)
        _check(package, path)
    except OSError as error:
        raise Unavailable(f"{package}: {cache} cannot be used: {error.strerror}") from None
    return path


def _check(package: Package, path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        raise Unavailable(
            f"{package}: {path} has changed: its SHA-256 is {found}, and that of the manifest "
            f"{package.sha256}. Delete the file to download it again"
        )


def _downloaded(package: Package, folder: Path) -> Path:
    name, version = package.name, package.version
    if package.registry == "npm":
        command = ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
    elif package.registry == "debian":
        command = ["apt-get", "download", "-q", f"{name}={version}"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-input", "--only-binary=:all:"]
        command += [*_tags(package.file), f"{name}=={version}"]
    _run(package, command, folder)
    path = folder / package.file
    if not path.is_file():
        others = ", ".join(sorted(found.name for found in folder.iterdir())) or "nothing"
        raise Unavailable(f"{package}: the registry has {others}, and not {package.file}")
    return path


def _tags(file: str) -> list[str]:
    """The options that make pip choose this wheel, whatever Python and machine run it."""
    found = _WHEEL.fullmatch(file)
    if found is None:
        raise ValueError(f"{file} is not the name of a wheel")
    options = ["--ignore-requires-python"]
    options += [f"--platform={platform}" for platform in found["platform"].split(".")]
    python = _CPYTHON.fullmatch(found["python"])
    if python is not None:
        options += ["--implementation=cp", f"--python-version={python[1]}.{python[2]}"]
        options += [f"--abi={found['abi']}"]
    return options


def _run(package: Package, command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{package}: {command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{package}: no answer of its registry in {_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = [line for line in lines if "ERROR" in line.upper() or line.startswith("E: ")]
        words = (said or ["it said nothing"])[-1].strip()
        raise Unavailable(f"{package}: the {package.registry} registry does not give it: {words}")
