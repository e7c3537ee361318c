"""The files of a run: its models, who is in which cluster, and what another run continues from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from modelkin._whole_files import write_whole
from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import ClusteredRounds
from modelkin.integrations.federation.federation_state import FederationState
from modelkin.integrations.federation.messages import SupportMessage

__all__ = ["read_model", "read_state", "report_of", "write_run"]

_ALL: Final = "all.safetensors"
_FIRST: Final = "first.safetensors"
_CLIENTS: Final = "clients.safetensors"
_ROUNDS: Final = "rounds.json"


def write_run(folder: Path, rounds: ClusteredRounds, reports: list[dict[str, Any]]) -> None:
    """Write all files, in place of older ones; the last report is that of this round."""
    folder.mkdir(parents=True, exist_ok=True)
    state = FederationState.of(rounds, int(reports[-1]["round"]))
    write_whole(folder / _ALL, _bytes_of(state.arrays))
    models = {f"cluster-{n}.safetensors": model for n, model in state.cluster_arrays.items()}
    for name, model in models.items():
        write_whole(folder / name, _bytes_of(model))
    for path in folder.glob("cluster-*.safetensors"):
        if path.name not in models:  # of a cluster that is empty now
            path.unlink()
    if state.first is not None:
        write_whole(folder / _FIRST, _bytes_of(state.first))
    sent = {node: message.to_values() for node, message in state.messages.items()}
    sent |= {node: {"data": own.to_bytes()} for node, own in state.subspaces.items()}
    data = {state.names[n]: np.frombuffer(each.pop("data"), np.uint8) for n, each in sent.items()}  # type: ignore[arg-type]  # bytes
    clients = {
        name: {"node": node, "cluster": state.clusters.get(node), **sent.get(node, {})}
        for node, name in sorted(state.names.items())
    }
    about = {
        "clients": json.dumps(clients),
        "num_values": str(state.num_values),
        "evidence": json.dumps({state.names[n]: own for n, own in state.evidence.items()}),
        "options": json.dumps(state.options),
    }
    write_whole(folder / _CLIENTS, save(data, about))
    write_whole(folder / _ROUNDS, json.dumps(reports, indent=1).encode())


def _bytes_of(model: Model) -> bytes:
    return save({name: np.asarray(values, order="C") for name, values in model.items()})


def report_of(
    server_round: int, rounds: ClusteredRounds, silent: Mapping[int, str]
) -> dict[str, Any]:
    """What a round gave, by the names of sites.

    Args:
        server_round: the round's number.
        rounds: the rounds after it.
        silent: the reasons why sites that were asked sent no model.
    """
    found, of = rounds.clusters, rounds.names.of
    report: dict[str, Any] = {
        "round": server_round,
        "metrics": {"all" if c is None else str(c): m for c, m in rounds.metrics.items()},
        "silent": {of(node): why for node, why in sorted(silent.items())},
    }
    if found is not None:
        report["clusters"] = {str(number): list(names) for number, names in found.named.items()}
        report["silhouette"] = found.silhouette
        report["left_out"] = {of(node): why for node, why in sorted(found.left_out.items())}
        report["weights"] = {of(node): share for node, share in sorted(found.weights.items())}
        report["weighted_down"] = {of(n): why for n, why in sorted(found.weighted_down.items())}
    return report


def read_model(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file.

    Raises:
        InvalidParameter: there is no such file, or it is damaged.
    """
    try:
        return dict(load(path.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise InvalidParameter(f"{path} cannot be read: {error}", field="initial") from None


def read_state(folder: Path) -> tuple[FederationState, list[dict[str, Any]]]:
    """The state that a run has left, and its reports.

    Raises:
        InvalidParameter: a file is missing or damaged.
    """
    try:
        reports = json.loads((folder / _ROUNDS).read_bytes())
        data = (folder / _CLIENTS).read_bytes()
        sent = {name: values.tobytes() for name, values in load(data).items()}
        header = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + header])["__metadata__"]
        clients = json.loads(about["clients"])
        clusters = {c["node"]: c["cluster"] for c in clients.values() if c["cluster"] is not None}
        first = folder / _FIRST
        state = FederationState(
            server_round=int(reports[-1]["round"]),
            names={own["node"]: name for name, own in clients.items()},
            clusters=clusters,
            arrays=read_model(folder / _ALL),
            cluster_arrays={
                number: read_model(folder / f"cluster-{number}.safetensors")
                for number in sorted(set(clusters.values()))
                if (folder / f"cluster-{number}.safetensors").exists()
            },
            num_values=int(about["num_values"]),
            first=read_model(first) if first.exists() else None,
            messages={
                clients[name]["node"]: SupportMessage.from_values({**clients[name], "data": each})
                for name, each in sent.items()
                if "kind" in clients[name]
            },
            subspaces={
                clients[name]["node"]: Subspace.from_bytes(each)
                for name, each in sent.items()
                if "kind" not in clients[name]
            },
            evidence={
                clients[name]["node"]: (float(total), float(weight), int(rounds))
                for name, (total, weight, rounds) in json.loads(about.get("evidence", "{}")).items()
            },
            options=json.loads(about.get("options", "{}")),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ModelkinError) as error:
        raise InvalidParameter(
            f"{folder} is not what a run has left: {type(error).__name__}: {error}", field="before"
        ) from None
    return state, reports
