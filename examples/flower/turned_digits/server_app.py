"""The ServerApp: FedAvg, and a model for each cluster of clients around it."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import save_file

import modelkin
from modelkin.integrations.flower import ClusteredStrategy, RoundClusters
from modelkin.torch import layout_of
from turned_digits.task import CLIENTS, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds; then write the model of each cluster, and that of all."""
    config = context.run_config
    url = str(config["service"])  # empty: no service, the clusters are found here alone
    client = modelkin.Client(url) if url else None
    strategy = ClusteredStrategy(
        FedAvg(min_available_nodes=CLIENTS),
        n_clusters=int(config["clusters"]) or None,  # 0: as many as there are
        per_cluster=bool(config["per-cluster"]),
        on_clusters=show,
        client=client,
        space="turned-digits" if client else None,
        model="clinics/{node}",
        layout=layout_of(network()),
        importance="fisher",
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
    )
    found = {number: dict(each) for number, each in result.evaluate_metrics_clientapp.items()}
    print(f"accuracy by round: {[round(each['accuracy'], 2) for each in found.values()]}")
    save(Path(str(config["models"])).resolve(), strategy, result.arrays)
    if client is not None:
        client.close()


def show(found: RoundClusters) -> None:
    """Print who is in which cluster."""
    for cluster, names in found.named.items():
        print(f"round {found.server_round}, cluster {cluster}: {', '.join(names)}")


def save(folder: Path, strategy: ClusteredStrategy, common: ArrayRecord) -> None:
    """Write ``cluster-0.safetensors`` and so on, and who is in which cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    for cluster, arrays in strategy.cluster_arrays.items():
        save_file(arrays.to_torch_state_dict(), folder / f"cluster-{cluster}.safetensors")
    save_file(common.to_torch_state_dict(), folder / "all.safetensors")
    named = {} if strategy.clusters is None else strategy.clusters.named
    (folder / "clusters.json").write_text(json.dumps(named, indent=2))
    print(f"models: {folder}")
