"""Federations in NVFlare's own simulator: a process for each site.

``python -m tests.soak.federations.nvflare_simulator`` (``make nvflare``) makes an environment over
the packages of this one, which has no NVFlare. Where it cannot be had, one line says so, and the
exit code is 0, or 1 with ``--only-make``. It runs the example, the code of docs/nvflare.md,
a federation of two kinds of sites, of which one sends another layout in the second round and one
dies in the third; and one that averages in shards. ``make test-all`` has the first alone: a site is
a process, which takes seconds to import what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import load_file

from tests.docs.pages import marked_blocks

ROOT: Final = Path(__file__).resolve().parents[3]
NVFLARE: Final = "nvflare==2.9.0"
HOME: Final = Path(os.environ.get("NVFLARE_HOME", Path(sys.prefix) / "nvflare"))
"""Where the environment is."""

SITES: Final = tuple(f"site-{node}" for node in range(1, 9))
_END_S: Final = 900.0
_EXACT: Final = 1e-7
_RUN: Final = Path("server") / "simulate_job" / "modelkin"

_JOB: Final = """
import sys
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from safetensors.torch import save_file
from modelkin.integrations.nvflare import ClusteredFedAvg
from tests.support.federations.two_kinds import mlp

script, folder, sites = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
save_file(mlp().state_dict(), folder + "/initial.safetensors")
job = FedJob(name="two-kinds", min_clients=len(sites))
job.set_app_packages(["modelkin", "tests"])
job.to_server(ClusteredFedAvg(num_rounds=3, initial="initial.safetensors"))
job.add_file_to_server(folder + "/initial.safetensors", app_folder_type="config")
job.to_clients(ScriptRunner(script=script))
sys.exit(job.simulator_run(folder + "/two-kinds", clients=sites, log_config="concise"))
"""

_SHARDS: Final = """
import sys
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from safetensors.torch import save_file
from modelkin.integrations.nvflare import ClusteredFedAvg
from tests.support.federations.two_kinds import mlp

script, folder, sites = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
save_file(mlp().state_dict(), folder + "/initial.safetensors")
job = FedJob(name="shards", min_clients=len(sites))
job.set_app_packages(["modelkin", "tests"])
job.to_server(
    ClusteredFedAvg(num_rounds=2, initial="initial.safetensors", shards={"aggregators": 3})
)
job.add_file_to_server(folder + "/initial.safetensors", app_folder_type="config")
job.to_clients(ScriptRunner(script=script, script_args=folder))
sys.exit(job.simulator_run(folder + "/shards", clients=sites, log_config="concise"))
"""


def is_complete(home: Path) -> bool:
    """Whether an environment has NVFlare, as far as its files show."""
    return any(home.glob("lib/python*/site-packages/nvflare-*.dist-info"))


def environment(home: Path) -> str | None:
    """Make the environment, unless it is there; the reason if it cannot be made."""
    if is_complete(home):
        return None
    venv.create(home, with_pip=False)
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "behind.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    quietly = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    given = [*pip, *quietly, "-c", str(ROOT / "constraints.txt"), NVFLARE]
    done = subprocess.run(given, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return errors[-1] if errors else "pip failed"
    return None


def run(home: Path, *arguments: str, folder: Path = ROOT) -> str:
    """What a program in Python of the environment prints, started in a folder.

    Raises:
        SystemExit: it fails.
    """
    # Else each site would compile NVFlare anew, which pip has not compiled.
    kept = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables = {
        **kept,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client_sdk'}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [str(home / "bin" / "python"), *arguments],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def example(home: Path, workspace: Path) -> list[str]:
    """What ``examples/nvflare`` prints: clusters, accuracy by round, and where its models are."""
    printed = run(
        home, str(ROOT / "examples" / "nvflare" / "job.py"), "--workspace", str(workspace)
    )
    said = ("round 5, cluster", "accuracy by round", "models:")
    return [line for line in printed.splitlines() if line.startswith(said)]


def guide(home: Path, folder: Path) -> str:
    """Run the two blocks of docs/nvflare.md: five sites, of which the last comes with another job.

    Raises:
        SystemExit: a site is not with its kin, or the page says other clusters and accuracies.
    """
    script, job, promised = marked_blocks((ROOT / "docs" / "nvflare.md").read_text())
    (folder / "client.py").write_text(script)
    (folder / "job.py").write_text(job)
    printed = run(home, "job.py", folder=folder).splitlines()
    said = [line for line in printed if line in promised.splitlines()]
    if said != promised.splitlines():
        raise SystemExit(f"docs/nvflare.md does not say what its guide prints: {said}")
    report = json.loads((folder / "runs" / "five" / _RUN / "rounds.json").read_text())[-1]
    groups = sorted(report["clusters"].values())
    if groups != [["site-1", "site-3", "site-5"], ["site-2", "site-4"]]:
        raise SystemExit(f"sites are in other clusters: {report}")
    return f"round {report['round']}: {groups}"


def two_kinds(home: Path, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Three rounds of eight sites, two of which fail; the folder of models, and the reports."""
    script = ROOT / "tests" / "sdk" / "integrations" / "nvflare" / "site_script.py"
    run(home, "-c", _JOB, str(script), str(folder), ",".join(SITES))
    models = folder / "two-kinds" / _RUN
    return models, json.loads((models / "rounds.json").read_text())


def shards(home: Path, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Two rounds of eight sites whose models nobody sees; the folder of models, and the reports.

    Each site leaves what it trained in the folder as well, ``ROUND-SITE.safetensors``.
    """
    script = ROOT / "tests" / "sdk" / "integrations" / "nvflare" / "shards_script.py"
    run(home, "-c", _SHARDS, str(script), str(folder), ",".join(SITES))
    models = folder / "shards" / _RUN
    return models, json.loads((models / "rounds.json").read_text())


def check_shards(models: Path, reports: list[dict[str, Any]], folder: Path) -> str:
    """How far the models of clusters are from the float64 means of their sites' models.

    Raises:
        SystemExit: more than 1e-7, or other sites are in a cluster.
    """
    groups = {str(part["cluster"]): part["members"] for part in reports[-1]["shards"]}
    if sorted(groups.values()) != [sorted(SITES[::2]), sorted(SITES[1::2])]:
        raise SystemExit(f"sites are in other averages: {reports}")
    worst = 0.0
    for cluster, members in groups.items():
        sent = [load_file(folder / f"{len(reports)}-{name}.safetensors") for name in members]
        sizes = [10 + int(name.removeprefix("site-")) for name in members]
        for name, values in load_file(models / f"cluster-{cluster}.safetensors").items():
            every = [np.asarray(each[name], np.float64) for each in sent]
            mean = np.average(every, axis=0, weights=sizes)
            worst = max(worst, float(np.max(np.abs(values - mean) / np.maximum(1, np.abs(mean)))))
    if worst > _EXACT:
        raise SystemExit(f"models differ from their float64 means by {worst:.1e}")
    return f"models differ from their float64 means by {worst:.1e}"


def check(reports: list[dict[str, Any]]) -> list[str]:
    """A line for each round.

    Raises:
        SystemExit: a claim does not hold.
    """
    expected = [sorted(SITES[::2]), sorted(SITES[1::2])]
    if [expected] * 3 != [sorted(each["clusters"].values()) for each in reports]:
        raise SystemExit(f"sites are in other clusters: {reports}")
    left_out = [{**each["silent"], **each["weighted_down"]} for each in reports]
    if [set(), {"site-3"}, {"site-6"}] != [set(each) for each in left_out]:
        raise SystemExit(f"other sites were left out: {left_out}")
    return [f"round {number}: left out {out}" for number, out in enumerate(left_out, start=1)]


def main() -> int:
    """Make the environment and run both federations."""
    parser = argparse.ArgumentParser(description="Federations in NVFlare's simulator.")
    parser.add_argument("--environment", type=Path, default=HOME, help="is made if missing")
    parser.add_argument("--only-make", action="store_true", help="make the environment alone")
    given = parser.parse_args()
    reason = environment(given.environment)
    if reason is not None:
        print(f"skipped: NVFlare cannot be installed here: {reason[:200]}")
        return int(given.only_make)
    if given.only_make:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        print("\n".join(example(given.environment, Path(folder))))
        print(f"examples/nvflare: {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        print(guide(given.environment, Path(folder)))
        print(f"the code of docs/nvflare.md: {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        print("\n".join(check(two_kinds(given.environment, Path(folder))[1])))
        print(f"two kinds of sites, of which two fail: {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        print(check_shards(*shards(given.environment, Path(folder)), Path(folder)))
        print(f"averages in shards: {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
