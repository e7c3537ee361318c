"""The machine code of kernels: kept, loaded without numba, and compiled again where it is not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin.core.kernels import fast, machine_code
from modelkin.core.kernels.compiled import compiled

FIRST_CALLS = """
import sys
import numpy as np
from modelkin import select_support, similarity
support = select_support(np.arange(1000, dtype=np.float32) % 97, k=80)
print(similarity(support, support), support.signature().values.sum(), "numba" in sys.modules)
"""
WIDTHS = """
from modelkin.core.kernels import compiling, fast
_, _, module = compiling.compile_loop(fast._and_count.function, ["u8:1", "u8:1"])
print(compiling.target().emit_assembly(module))
"""


FORK = """
import os, signal, threading
import numpy as np
from modelkin.core.kernels import fast, machine_code
held, done = threading.Event(), threading.Event()
def compile_for_long():
    with machine_code._lock:
        held.set()
        done.wait()
threading.Thread(target=compile_for_long).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(fast.and_count(np.ones(9, np.uint64), np.ones(9, np.uint64)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
"""


ONE_LOOP = """
import logging, threading, time
import numpy as np
from modelkin.core.kernels import choice, fast, machine_code
ones = np.ones(9, np.uint64)
fast._warm = lambda: fast.and_count(ones, ones)
"""
STANDING_IN = f"""{ONE_LOOP}
run, begins = machine_code.compiler.run, threading.Event()
def of_one_loop(*loop, lock=None):
    begins.wait()
    made = run("modelkin.core.kernels.fast", "_and_count", "u8:1", "u8:1")
    for name, record in made:  # as the compiler of all loops does
        machine_code.keep(name, record)
    return made
machine_code.compiler.run = of_one_loop
ready = threading.Event()
choice.prepare(ready.set)
print(choice.kernels().__name__, choice.kernels().and_count(ones, ones), ready.is_set())
begins.set()
ready.wait(60)
print(choice.kernels().__name__, choice.kernels().and_count(ones, ones))
choice.prepare(lambda: print("loaded at once"))
"""
OUTLIVING = f"""{ONE_LOOP}
import os, sys
from modelkin.core.kernels import compiling
read, write = os.pipe()
os.dup2(write, 1)
os.close(read), os.close(write)
compiling.main([])
os._exit(0)
"""


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


@compiled
def doubled(numbers: Any) -> Any:
    copy = np.empty(numbers.size, np.uint64)
    for i in range(numbers.size):
        copy[i] = numbers[i] * np.uint64(2)
    return copy.sum()


def test_first_calls_of_a_process_load_no_numba() -> None:
    """Once the kernels are compiled, a new process runs them without numba, to the same results."""
    fast.warm()
    *values, numba = printed(FIRST_CALLS).split()
    assert "False" == numba
    assert values == printed(FIRST_CALLS, MODELKIN_KERNELS="reference").split()[:2]


def test_another_installation_of_the_same_compiler_finds_them(tmp_path: Path) -> None:
    """Such as that of a new image on an old volume: the compiler's version counts, not its age."""
    fast.warm()
    found = importlib.util.find_spec("numba")
    assert found is not None
    assert found.origin is not None
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise SystemExit('the compiler is needed')")
    shutil.copy(Path(found.origin).with_name("_version.py"), tmp_path / "numba")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert printed(FIRST_CALLS) == printed(FIRST_CALLS, PYTHONPATH=path)


def test_numpy_stands_in_while_kernels_are_compiled(tmp_path: Path) -> None:
    """A service answers at once on a new machine, and uses what was compiled from then on."""
    names = {"NUMBA_CACHE_DIR": str(tmp_path), "MODELKIN_KERNELS": "auto"}
    first, then, *loaded = printed(STANDING_IN, **names).splitlines()
    assert "modelkin.core.kernels.reference 9 False" == first
    assert "modelkin.core.kernels.fast 9" == then
    assert ["loaded at once"] == loaded
    again = printed(f"{ONE_LOOP}choice.prepare(lambda: print('loaded at once'))", **names)
    assert "loaded at once" == again.strip()


def test_those_that_ask_for_fast_kernels_wait_for_them(tmp_path: Path) -> None:
    """MODELKIN_KERNELS=fast has no stand-in."""
    code = STANDING_IN.replace("begins.wait()", "pass")
    said = printed(code, NUMBA_CACHE_DIR=str(tmp_path), MODELKIN_KERNELS="fast")
    assert "modelkin.core.kernels.fast 9 True" == said.splitlines()[0]


def test_the_compiler_outlives_who_began_it(tmp_path: Path) -> None:
    """A program of five lines ends before it; the next one finds what it has compiled."""
    printed(OUTLIVING, NUMBA_CACHE_DIR=str(tmp_path))
    assert [".o"] == [file.suffix for file in tmp_path.iterdir()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_for_no_thread_of_its_parent() -> None:
    """A loader of data may fork while another thread waits for the compiler."""
    assert "9" == printed(FORK).strip()


@pytest.mark.parametrize("place", ["damaged", "unusable"])
def test_bad_folders_change_no_result(place: str, tmp_path: Path) -> None:
    """Damaged files are made again; where the folder cannot be written, nothing is kept."""
    folder = tmp_path / "kernels"
    code = "import numpy as np; from modelkin.core.kernels import fast; print(fast.and_count("
    code += "np.ones(9, np.uint64), np.ones(9, np.uint64)))"
    if place == "unusable":
        folder.write_text("a file")
    else:
        assert "9" == printed(code, NUMBA_CACHE_DIR=str(folder)).strip()
        (file,) = folder.iterdir()
        whole = file.read_bytes()
        file.write_bytes(whole[:-9])
    assert "9" == printed(code, NUMBA_CACHE_DIR=str(folder)).strip()
    if place == "damaged":
        assert whole == file.read_bytes()


def test_only_code_of_this_user_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that another user could have written, or of another loop, would run in this process.

    The compiler imports nothing of the folder it runs in, which may be one of downloads.
    """
    (tmp_path / "numba.py").write_text("raise SystemExit('the module of a download')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(machine_code.compiler, "usable", True)
    monkeypatch.setattr(machine_code, "records", {})
    loop = "modelkin.core.kernels.fast", "_and_count", "u8:1", "u8:1"
    ((name, record),) = machine_code.compiler.run(*loop)
    mask = os.umask(0)
    try:
        machine_code.keep(name, record)
    finally:
        os.umask(mask)
    (file,) = (tmp_path / "kernels").iterdir()
    assert machine_code.first_valid(name) is not None
    file.chmod(0o646)
    assert machine_code.first_valid(name) is None
    file.chmod(0o644)
    file.rename(file.with_name("another"))
    assert machine_code.first_valid("another") is None


def test_a_user_without_a_home_has_no_cache_in_the_folder_at_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There ``~`` stays as it is, and names a folder below the one that it runs in."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert all(folder.is_absolute() for folder in machine_code.folders())


def test_what_else_the_compiler_prints_is_no_code(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it prints what is not its own, such as a greeting, numba compiles in this process."""
    monkeypatch.setattr(machine_code.compiler, "usable", True)
    monkeypatch.setattr(machine_code, "_COMPILER", "this")
    assert [] == machine_code.compiler.run("a module", "a loop")
    assert not machine_code.compiler.usable
    assert "compiled in this process" in caplog.text


def test_loops_that_allocate_still_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is more than machine code is compiled by numba itself, which the log says."""
    monkeypatch.setattr(machine_code.compiler, "usable", True)
    assert 12 == doubled(np.arange(4, dtype=np.uint64))
    assert "doubled needs NRT_" in caplog.text
    assert "give it its scratch arrays" in caplog.text


def test_loops_refuse_what_they_would_read_wrongly() -> None:
    """Arrays with gaps, unaligned ones, others' byte order, and fractions are refused."""
    with pytest.raises(TypeError, match="contiguous, aligned"):
        doubled(np.ones(8, np.uint64)[::2])
    with pytest.raises(TypeError, match="byte order"):
        doubled(np.ones(8, np.dtype(np.uint64).newbyteorder()))
    with pytest.raises(TypeError, match="integer"):
        doubled(1.5)


@pytest.mark.parametrize("processor", ["skylake-avx512", "sapphirerapids"])
def test_avx512_is_used_whole(processor: str) -> None:
    """Code for Intel's processors with AVX-512 uses its whole registers."""
    features = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2"
    code = printed(WIDTHS, NUMBA_CPU_NAME=processor, NUMBA_CPU_FEATURES=chosen(features))
    assert code.count("%zmm") > code.count("%ymm")


@cache
def chosen(features: str) -> str:
    """The features that a process compiles for where the processor has these."""
    code = "from modelkin.core.kernels import machine_code; print(machine_code.processor()[1])"
    return printed(code, NUMBA_CPU_NAME="x", NUMBA_CPU_FEATURES=features).strip()


def test_processors_without_avx512_stay_as_they_are() -> None:
    """Nothing is changed for a processor without AVX-512."""
    assert "+avx2" == chosen("+avx2")
