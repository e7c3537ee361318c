"""Machine code of loops: kept in a folder, loaded by llvmlite, compiled by another process.

The folder is ``NUMBA_CACHE_DIR`` if that is set, else the first that can be used of the package's
own ``__pycache__`` and the user's cache. A file is found again where the processor, these sources
and the compiler are the same; it is checked by its digest. A file that other users could have
written is not loaded, since they would run in this process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "Code",
    "NotKept",
    "compiler",
    "file_of",
    "find",
    "first_valid",
    "folders",
    "keep",
    "kept_only",
    "linked",
    "processor",
    "record_of",
    "records",
    "together",
]

log = logging.getLogger(__name__)

_COMPILER = "modelkin.core.kernels.compiling"
_COMPILER_TIMEOUT_S = 600.0
_IMPORTS = re.compile(rb"^from (modelkin\.core\.kernels\.\w+) import", re.MULTILINE)
_lock = threading.RLock()
records: dict[str, bytes] = {}
"""What was compiled for this process, by the names of its files."""
_engines: list[Any] = []
"""Each owns the memory of one loop's code, until the process ends."""


def _renew_lock() -> None:
    """In a forked process, where the thread that held it is missing."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class Code:
    """A loop in memory.

    Attributes:
        address: of its entry.
        result: the type of what it returns, such as ``uint64``; ``none`` for nothing.
    """

    address: int
    result: str


class NotKept(Exception):
    """A loop would have to be compiled first."""


@contextmanager
def kept_only() -> Iterator[None]:
    """Within, a loop that is in no folder is :class:`NotKept`, rather than compiled."""
    compiler.forbidden = True
    try:
        yield
    finally:
        compiler.forbidden = False


@contextmanager
def together() -> Iterator[None]:
    """Within, the first loop that is missing has all loops compiled, in one process."""
    compiler.everything = True
    try:
        yield
    finally:
        compiler.everything = False


def find(module: str, loop: str, types: Sequence[str]) -> Code | None:
    """The code of a loop for some types of arguments; None where only numba itself can run it."""
    with _lock:
        name = _file_name(module, loop, types)
        code = first_valid(name)
        if code is None and compiler.forbidden:
            raise NotKept(name)
        if code is None and compiler.everything:
            with _alone() as lock:
                code = first_valid(name)
                if code is None:  # the compiler keeps all of them itself, since it may outlive this
                    records.update(compiler.run(lock=lock))
                    code = linked(records.get(name, b""), name)
        elif code is None:
            for made, record in compiler.run(module, loop, *types):
                records[made] = record
                keep(made, record)
            code = linked(records.get(name, b""), name)
        return code


@contextmanager
def _alone() -> Iterator[int | None]:
    """One process at a time compiles everything; the others wait, and find it in the folder.

    Yields:
        The descriptor of the lock, which the compiler inherits: it may outlive who began it.
        None where there are no such locks.
    """
    with ExitStack() as stack:
        yield _locked(stack)


def _locked(stack: ExitStack) -> int | None:
    if sys.platform == "win32":
        return None
    import fcntl

    for folder in folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / ".compiling", os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor
    return None


def _file_name(module: str, loop: str, types: Sequence[str]) -> str:
    kinds = "_".join(each.replace(":", "x") for each in types)
    return f"{module.rpartition('.')[2]}.{loop}-{kinds}-{_stamp(module)}.o"


@cache
def _stamp(module: str) -> str:
    """A digest of all that the machine code of a module's loops depends on."""
    digest = hashlib.sha256(" ".join([*processor(), sys.platform]).encode())
    for source in sorted(_sources(module, {_COMPILER: b""}).values()):
        digest.update(source)
    for compiler in ("numba", "llvmlite"):
        digest.update(_version_of(compiler))
    return digest.hexdigest()[:20]


def _version_of(package: str) -> bytes:
    """What identifies a package's version: the same wherever, and whenever, it is installed."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return b""
    first = Path(found.origin)
    version = first.with_name("_version.py")
    return (version if version.is_file() else first).read_bytes()


def _sources(module: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """The sources of a module, of the modules of kernels that it imports, and of ``found``."""
    for name in [module, *found]:
        if not found.get(name):
            path = getattr(importlib.util.find_spec(name), "origin", None)
            found[name] = Path(path).read_bytes() if path else b"-"
            for imported in _IMPORTS.findall(found[name]):
                _sources(imported.decode(), found)
    return found


@cache
def processor() -> tuple[str, str]:
    """The name and the features to compile for, with the whole of AVX-512 where there is some.

    On Intel's processors LLVM uses half of each 512-bit register by default.
    """
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features.split(",") and "prefer-256-bit" not in features:
        features += ",-prefer-256-bit"
    return name, features


def folders() -> list[Path]:
    """Where files are kept, the first choice first."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    caches = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    own = Path(os.path.expanduser(caches)) / "modelkin"
    found = [Path(__file__).parent / "__pycache__", own]
    # Without a home, a relative path is left: below the folder at hand, of any owner.
    return [folder for folder in found if folder.is_absolute()]


def first_valid(name: str) -> Code | None:
    """The code of the first file of this name that may be loaded, or of this process's records."""
    for folder in folders():
        with suppress(OSError):
            code = linked(_read(folder / name), name)
            if code is not None:
                return code
    return linked(records.get(name, b""), name)


def _read(path: Path) -> bytes:
    """A file of this user, of root or of the owner of this source, which no others can write."""
    source = os.stat(__file__)
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        trusted = not hasattr(os, "geteuid") or facts.st_uid in (0, os.geteuid(), source.st_uid)
        closed = not facts.st_mode & ~source.st_mode & 0o022
        return file.read() if trusted and closed else b""


def keep(name: str, record: bytes) -> None:
    """Write a record to the first folder where that is possible."""
    for folder in folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"{name}.{os.urandom(6).hex()}"
            with new.open("xb") as file:
                try:
                    file.write(record)
                    file.close()
                    new.chmod(0o644)  # whatever the mask: what others can write is not read
                    os.replace(new, folder / name)
                finally:
                    new.unlink(missing_ok=True)
            return


def record_of(
    module: str, loop: str, types: Sequence[str], symbol: str, result: str, code: bytes
) -> bytes:
    """One loop as it is kept: a line of JSON, then the object file."""
    file, digest = _file_name(module, loop, types), hashlib.sha256(code).hexdigest()
    head = {"file": file, "symbol": symbol, "result": result, "size": len(code), "sha256": digest}
    return json.dumps(head).encode() + b"\n" + code


def file_of(record: bytes) -> str:
    """The name of the file that a record is kept in."""
    return str(json.loads(record.partition(b"\n")[0])["file"])


def linked(record: bytes, name: str | None = None) -> Code | None:
    """The code of a record; None if the record is empty, damaged or not of that file name."""
    line, _, code = record.partition(b"\n")
    try:
        head = json.loads(line)
        if name not in (None, head["file"]) or head["sha256"] != hashlib.sha256(code).hexdigest():
            return None
        symbol, result = str(head["symbol"]), str(head["result"])
    except (ValueError, KeyError, TypeError):
        return None
    engine = _new_engine()
    engine.add_object_file(_object(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        return None
    _engines.append(engine)
    return Code(address, result)


def _object(code: bytes) -> Any:
    import llvmlite.binding as llvm

    return llvm.ObjectFileRef.from_data(code)


def _new_engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


class _Compiler:
    """The other process; after it has failed once, numba compiles in this one.

    Attributes:
        everything: compile all loops rather than the one that is missing.
        forbidden: compile none.
        usable: it has not failed.
    """

    def __init__(self) -> None:
        self.everything = False
        self.forbidden = False
        self.usable = bool(sys.executable) and not getattr(sys, "frozen", False)

    def run(self, *loop: str, lock: int | None = None) -> list[tuple[str, bytes]]:
        """The records of what it compiled, each with the name of its file; by default of all loops.

        Args:
            loop: its module, its name and the types of its arguments.
            lock: a descriptor that it inherits.
        """
        if not self.usable:
            return []
        if not loop:
            log.info(
                "compiling kernels for this processor, once: most of a minute of a core, longer "
                "where the machine is busy"
            )
        # -P: from the folder in which this runs nothing is imported that this would not import.
        command = [sys.executable, "-P", "-m", _COMPILER, *loop]
        try:
            done = subprocess.run(  # noqa: S603 (this interpreter, and names of this package)
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_COMPILER_TIMEOUT_S,
                pass_fds=() if lock is None else (lock,),
            )
            return list(_split(done.stdout))
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            self.usable = False
            log.warning("kernels are compiled in this process: %s", _reason(error))
            return []

    def _environment(self) -> dict[str, str]:
        name, features = processor()
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        chosen = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "PYTHONPATH": path}
        return {**os.environ, **chosen}


compiler = _Compiler()


def _reason(error: Exception) -> str:
    output = getattr(error, "stderr", None) or b""
    return output.decode(errors="replace").strip().rpartition("\n")[2] or str(error)


def _split(output: bytes) -> Iterator[tuple[str, bytes]]:
    """The records of the compiler's output, each with the name of its file."""
    while output:
        line, _, rest = output.partition(b"\n")
        head = json.loads(line)
        size = int(head["size"])
        yield str(head["file"]), line + b"\n" + rest[:size]
        output = rest[size:]
