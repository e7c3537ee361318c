"""The SDK's wheel by itself, installed as a stranger would install it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.installed import link_requirements

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

WORKS = """
import sys
import numpy as np
import modelkin

support = modelkin.select_support(np.random.default_rng(1).random(10_000, np.float32), coverage=0.5)
assert modelkin.Support.from_bytes(support.to_bytes()) == support
signature = support.signature()
assert modelkin.Signature.from_bytes(signature.to_bytes()) == signature
assert modelkin.similarity(support, support) == 1.0
try:
    modelkin.Client("http://127.0.0.1:9", retries=0).spaces.get("missing-space")
except modelkin.ConnectionFailed as error:
    print(error)
absent = {"torch", "numba", "pyroaring", "datasketch", "pandas", "fastapi", "gguf"}
heavy = absent & set(sys.modules)
assert not heavy, heavy
"""

MISSING = {
    "torch": "from modelkin.torch import fisher_importance",
    "huggingface": "import modelkin.integrations.huggingface",
    "lightning": "import modelkin.integrations.lightning",
    "flower": "import modelkin.integrations.flower",
    "gguf": "from modelkin.checkpoints.gguf.types import load_gguf; load_gguf()",
    "roaring": "import modelkin; modelkin.Support.from_indices([1], 9).to_roaring()",
    "datasketch": (
        "import modelkin; modelkin.Support.from_indices([1], 9).signature().to_datasketch()"
    ),
    "pandas": (
        "import modelkin; modelkin.Neighbors(items=(), method='exact', candidates=0, "
        "degraded=False).to_pandas()"
    ),
}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(c) for c in command]
    return subprocess.run(words, capture_output=True, text=True, cwd="/", env=kept)


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    """The wheel, as a release has it."""
    (path,) = distributions.glob("modelkin-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it requires, nothing else."""
    venv = tmp_path_factory.mktemp("venv")
    assert run(sys.executable, "-m", "venv", "--without-pip", venv).returncode == 0
    (packages,) = venv.glob("lib/python*/site-packages")
    link_requirements(packages, "modelkin")
    interpreter = venv / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    pip = sys.executable, "-m", "pip", "--python", interpreter  # one of its own takes seconds
    installed = run(*pip, "install", "-q", "-c", constraints, wheel)
    assert installed.returncode == 0, installed.stderr
    return interpreter


def test_wheel_works_with_numpy_httpx_and_zstandard_alone(python: Path) -> None:
    """Supports, signatures and the client work, and a service that is down is one line."""
    done = run(python, "-c", WORKS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "`modelkin serve`" in done.stdout


@pytest.mark.parametrize("extra", MISSING)
def test_missing_extra_names_its_install_command(python: Path, extra: str) -> None:
    """What needs an optional dependency says which pip install brings it."""
    done = run(python, "-c", MISSING[extra])
    assert done.returncode == 1
    assert f"pip install 'modelkin[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_command_reads_checkpoints_without_an_extra(python: Path, tmp_path: Path) -> None:
    """The installed `modelkin support` needs neither torch nor safetensors nor numba."""
    header = b'{"w":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}'
    checkpoint = tmp_path / "m.safetensors"
    checkpoint.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\x80\x3f\0\0\0\xc0")
    command = python.parent / "modelkin"
    done = run(command, "support", checkpoint, "--support-size", "2", "-o", tmp_path / "m.mksp")
    assert (0, "") == (done.returncode, done.stderr)
    assert "2 of 4 parameters (50.00%) with 100.0% of all |w|" in done.stdout


def test_wheel_holds_the_package_alone(wheel: Path) -> None:
    """The wheel carries modelkin with its type marker and licence, and no tests or service."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"modelkin"} == {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert "modelkin/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
