"""Eight clinics in NVFlare's simulator: ``python job.py``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from safetensors.torch import save_file

from modelkin.integrations.nvflare import ClusteredFedAvg

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "flower" / "turned_digits"
"""The clinics' data, network and training are those of the example for Flower."""

CLINICS = [f"clinic-{part:02}" for part in range(8)]
RUN = Path("server") / "simulate_job" / "modelkin"
"""Where a run leaves its models, in the simulator's folder."""


def run(workspace: Path) -> Path:
    """Run the job in NVFlare's simulator; return the folder of its models."""
    sys.path.insert(0, str(DATA.parent))
    from turned_digits.task import network

    job = FedJob(name=workspace.name, min_clients=len(CLINICS))
    job.set_app_packages(["modelkin"])  # it is installed at each site, and not sent along
    job.to_server(ClusteredFedAvg(num_rounds=5, initial="initial.safetensors", timeout=600))
    job.to_clients(ScriptRunner(script=str(HERE / "client.py")))
    job.add_file_to_clients(str(DATA), dest_dir=DATA.name)
    with TemporaryDirectory() as folder:
        save_file(network().state_dict(), Path(folder) / "initial.safetensors")
        job.add_file_to_server(str(Path(folder) / "initial.safetensors"))
        failed = job.simulator_run(str(workspace), clients=CLINICS, log_config="concise")
    if failed:
        raise SystemExit(f"NVFlare's simulator failed: see {workspace}")
    return workspace / RUN


def show(models: Path) -> None:
    """Print who is in which cluster, and the accuracy of the models that each round began with."""
    *_, last = reports = json.loads((models / "rounds.json").read_text())
    for cluster, names in last["clusters"].items():
        print(f"round {last['round']}, cluster {cluster}: {', '.join(names)}")
    accuracy = [round(each["metrics"]["all"]["accuracy"], 2) for each in reports]
    print(f"accuracy by round: {accuracy}")
    print(f"models: {models}", flush=True)


def main() -> None:
    """Five rounds of eight clinics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workspace", type=Path, default=HERE / "runs")
    workspace = parser.parse_args().workspace.resolve()
    show(run(workspace / "turned-digits"))


if __name__ == "__main__":
    main()
