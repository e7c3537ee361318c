"""The machine code of kernels: kept, loaded without numba, and compiled again where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
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


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
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


def test_loops_that_allocate_still_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is more than machine code is compiled by numba itself, which the log says."""
    monkeypatch.setattr(machine_code.compiler, "usable", True)
    assert 12 == doubled(np.arange(4, dtype=np.uint64))
    assert "doubled needs NRT_" in caplog.text
    assert "give it its scratch arrays" in caplog.text


def test_loops_refuse_what_they_would_read_wrongly() -> None:
    """Arrays with gaps, unaligned ones, and numbers that are not whole are refused."""
    with pytest.raises(TypeError, match="contiguous, aligned"):
        doubled(np.ones(8, np.uint64)[::2])
    with pytest.raises(TypeError, match="integer"):
        doubled(1.5)


@pytest.mark.parametrize("processor", ["skylake-avx512", "sapphirerapids"])
def test_avx512_is_used_whole(processor: str) -> None:
    """Code for Intel's processors with AVX-512 uses its whole registers."""
    features = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2"
    code = printed(WIDTHS, NUMBA_CPU_NAME=processor, NUMBA_CPU_FEATURES=chosen(features))
    assert code.count("%zmm") > code.count("%ymm")


def chosen(features: str) -> str:
    """The features that a process compiles for where the processor has these."""
    code = "from modelkin.core.kernels import machine_code; print(machine_code.processor()[1])"
    return printed(code, NUMBA_CPU_NAME="x", NUMBA_CPU_FEATURES=features).strip()


def test_processors_without_avx512_stay_as_they_are() -> None:
    """Nothing is changed for a processor without AVX-512."""
    assert "+avx2" == chosen("+avx2")
