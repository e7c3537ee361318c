"""Compiled loops: kept for later processes, with a stand-in while they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin.core.kernels import loops
from modelkin.core.kernels.loops import compile_loop, read_only

COUNTED = """
import numpy as np
from modelkin.core.kernels import fast
print(fast.and_count(np.ones(9, np.uint64), np.ones(9, np.uint64)))
stats = fast._and_count.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
FIRST_CALLS = """
import numpy as np
from modelkin import select_support, similarity
support = select_support(np.arange(1000, dtype=np.float32) % 97, k=80)
print(similarity(support, support), support.signature().values.sum())
"""
ONE_LOOP = """
import threading
import numpy as np
from modelkin.core.kernels import choice, fast, loops
ones = np.ones(9, np.uint64)
begins, loaded = threading.Event(), threading.Event()
def count():
    begins.wait(120)
    fast.and_count(ones, ones)
fast._warm = count
def say():
    print(choice.kernels().__name__, choice.kernels().and_count(ones, ones), flush=True)
"""
STANDING_IN = f"""{ONE_LOOP}
with choice.prepare(loaded.set):
    say()
    begins.set()
    loaded.wait(120)
    say()
"""
HELD_UP = f"""{ONE_LOOP}
from numba.core import event
class Compiler(event.Listener):
    def on_start(self, _):
        compiling.set()
        goes_on.wait(120)
    def on_end(self, _): pass
compiling, goes_on = threading.Event(), threading.Event()
begins.set()
event.register("numba:compile", Compiler())
with choice.prepare(loaded.set):
    compiling.wait(120)
    say()
    goes_on.set()
    loaded.wait(120)
    say()
"""
WAITING = f"""{ONE_LOOP}
begins.set()
with choice.prepare():
    print(sum(fast._and_count.stats.cache_misses.values()))
    say()
"""
ENDED = f"""{ONE_LOOP}
with choice.prepare(loaded.set):
    threading.Timer(0.2, begins.set).start()
print(loaded.is_set(), fast._and_count.signatures)
"""
PRELOADED = f"""{ONE_LOOP}
begins.set()
choice.preload()
print(len(fast._and_count.signatures), choice._all_loaded)
"""
FORK = f"""{ONE_LOOP}
import os, signal
with choice.prepare():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        say()
        os._exit(0)
    os.waitpid(child, 0)
    begins.set()
"""
WIDTHS = """
from modelkin.core.kernels import fast
import numpy as np
from numba import types
fast._and_count.compile((types.Array(types.uint64, 1, "C"),) * 2)
(code,) = fast._and_count.inspect_asm().values()
print(code.count("%zmm") > code.count("%ymm"))
"""


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


@compile_loop
def total(numbers: Any) -> Any:
    sum_ = np.uint64(0)
    for i in range(numbers.size):
        sum_ += numbers[i]
    return sum_


@pytest.mark.slow
def test_a_later_process_finds_what_one_has_compiled(tmp_path: Path) -> None:
    """It loads the loop, and compiles nothing."""
    first, second = (printed(COUNTED, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert ("9\n0 1\n", "9\n1 0\n") == (first, second)


@pytest.mark.slow
def test_processes_that_compile_at_once_share_a_folder(tmp_path: Path) -> None:
    """Each answers, and the next one compiles nothing."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    variables |= {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COUNTED]
    started = [
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert ["9"] * 3 == [each.communicate()[0].split()[0] for each in started]
    assert "9\n1 0\n" == printed(COUNTED, NUMBA_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_first_calls_give_the_same_on_both_kernels() -> None:
    """A new process selects, signs and compares to the same results by numba and by numpy."""
    assert printed(FIRST_CALLS) == printed(FIRST_CALLS, MODELKIN_KERNELS="reference")


@pytest.mark.slow
def test_numpy_stands_in_while_kernels_are_loaded() -> None:
    """A service answers at once, and uses numba's kernels from then on."""
    first, then = printed(STANDING_IN, MODELKIN_KERNELS="auto").splitlines()
    assert ["modelkin.core.kernels.reference 9", "modelkin.core.kernels.fast 9"] == [first, then]


@pytest.mark.slow
def test_no_call_waits_for_the_compiler(tmp_path: Path) -> None:
    """While numba is in the middle of compiling, numpy's kernels answer."""
    said = printed(HELD_UP, NUMBA_CACHE_DIR=str(tmp_path), MODELKIN_KERNELS="auto")
    expected = ["modelkin.core.kernels.reference 9", "modelkin.core.kernels.fast 9"]
    assert expected == said.splitlines()


@pytest.mark.slow
def test_those_that_ask_for_fast_kernels_wait_for_them(tmp_path: Path) -> None:
    """MODELKIN_KERNELS=fast has no stand-in."""
    said = printed(WAITING, NUMBA_CACHE_DIR=str(tmp_path), MODELKIN_KERNELS="fast")
    assert ["1", "modelkin.core.kernels.fast 9"] == said.splitlines()


@pytest.mark.slow
def test_a_service_that_ends_does_not_wait_for_all_loops(tmp_path: Path) -> None:
    """The thread begins no other loop once the service ends."""
    said = printed(ENDED, NUMBA_CACHE_DIR=str(tmp_path), MODELKIN_KERNELS="auto")
    assert "False []" == said.strip()


@pytest.mark.slow
def test_kept_kernels_are_loaded_before_a_fork(tmp_path: Path) -> None:
    """A process to fork from loads them where they are kept, and compiles none."""
    names = {"NUMBA_CACHE_DIR": str(tmp_path), "MODELKIN_KERNELS": "auto"}
    assert "0 False" == printed(PRELOADED, **names).strip()
    printed(COUNTED, **names)
    assert "1 True" == printed(PRELOADED, **names).strip()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_for_no_thread_of_its_parent() -> None:
    """One that is forked while a thread loads kernels goes on with numpy's."""
    assert "modelkin.core.kernels.reference 9" == printed(FORK, MODELKIN_KERNELS="auto").strip()


def test_where_nothing_can_be_kept_loops_run(caplog: pytest.LogCaptureFixture) -> None:
    """Each process compiles for itself, and one line of the log says so."""
    loops.say_that_none_are_kept.cache_clear()
    made = dict[str, Any]()
    exec("def double(x): return 2 * x\ndef triple(x): return 3 * x", made)
    assert [8, 12] == [compile_loop(made[name])(4) for name in ("double", "triple")]
    assert 1 == caplog.text.count("each process compiles its own kernels")


def test_arrays_of_all_kinds_meet_one_compiled_loop() -> None:
    """Arrays with gaps, unaligned and unwritable ones are one type, and none is changed."""
    numbers = np.arange(8, dtype=np.uint64)
    unaligned = np.frombuffer(b"-" + numbers.tobytes(), np.uint64, offset=1)
    given = [numbers, numbers.repeat(2)[::2], unaligned, read_only(numbers)]
    assert [28] * 4 == [total(read_only(each)) for each in given]
    assert 1 == len(total.signatures)
    assert numbers.flags.writeable


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["skylake-avx512", "sapphirerapids"])
def test_avx512_is_used_whole(processor: str, tmp_path: Path) -> None:
    """Code for Intel's processors with AVX-512 uses its whole registers.

    It is compiled here: numba shows no code that it has loaded from its cache.
    """
    features = loops.widen("+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2")
    own = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    assert "True" == printed(WIDTHS, **own, NUMBA_CACHE_DIR=str(tmp_path)).strip()


def test_processors_without_avx512_stay_as_they_are() -> None:
    """Nothing is changed for a processor without AVX-512."""
    assert "+avx2" == loops.widen("+avx2")
