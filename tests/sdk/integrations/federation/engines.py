"""One federation on each engine: the same sites, some of which misbehave, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load_file, save_file

from modelkin.integrations.federation.clustered_rounds import (
    ClusteredRounds,
    ClusterRules,
    Reply,
)
from modelkin.integrations.federation.support_maker import SupportMaker
from modelkin.integrations.flower import ClusteredStrategy, SupportMod, hand_over
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.support.federations import plain_kinds
from tests.support.federations.plain_kinds import importance, trained

__all__ = ["SITES", "Behaviour", "Found", "Sent", "by_flower", "by_nvflare", "by_rounds"]

Model = Mapping[str, np.ndarray[Any, Any]]

SITES: Final = (*(f"site-{number}" for number in range(1, 9)), "site-12")
"""The last one may come later; both it and site-2 have two examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a site sends after its training.

    Attributes:
        arrays: its model.
        examples: how many examples it claims; None for no word of them.
        metrics: by name.
    """

    arrays: Model
    examples: Any
    metrics: Mapping[str, Any] = field(default_factory=lambda: {"accuracy": 0.5})


Behaviour = Callable[[str, int, Sent], Sent | None]
"""What a site sends in a round, in place of what it should; None for no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a federation, by the names of sites.

    Attributes:
        groups: the sites of each cluster.
        models: the bits of the model of each site's cluster.
        weights: the share of each site in its cluster's last mean.
        down: the reasons why some count less, or not.
        left_out: the reasons why some are in no cluster.
    """

    groups: list[tuple[str, ...]]
    models: dict[str, dict[str, bytes]]
    weights: dict[str, float]
    down: dict[str, str]
    left_out: dict[str, str]


def initial() -> dict[str, np.ndarray[Any, Any]]:
    """The weights to begin with, and a counter as batch normalisation has one."""
    return {**plain_kinds.initial(), "steps": np.asarray(1000)}


def by_rounds(behave: Behaviour, num_rounds: int = 2, **rules: Any) -> Found:
    """The rounds without an engine."""
    rounds, names = ClusteredRounds(initial(), ClusterRules(**rules)), _names()
    for number in range(1, num_rounds + 1):
        rounds.begin(number, names, lambda nodes: {})
        replies = {}
        for node, name in names.items():
            sent = behave(name, number, _honest(rounds.model_for(node), name))
            if sent is not None:
                support = SupportMaker().make(importance(name), rounds.k)[0].to_values()
                replies[node] = Reply(sent.arrays, sent.examples, support, sent.metrics)
        rounds.finish(number, replies)
    return _found(rounds.clusters, rounds.cluster_arrays)


def by_flower(
    behave: Behaviour, num_rounds: int = 2, grid: type[LocalGrid] = LocalGrid, **rules: Any
) -> Found:
    """Flower's strategy, and ClientApps that send it bytes over a grid."""
    apps = {node: _app(name, behave) for node, name in _names().items()}
    strategy = ClusteredStrategy(FedAvg(fraction_evaluate=0.0), per_cluster=True, **rules)
    arrays = ArrayRecord({name: Array(values) for name, values in initial().items()})
    strategy.start(grid=grid(apps), initial_arrays=arrays, num_rounds=num_rounds)
    models = {
        cluster: {name: array.numpy() for name, array in record.items()}
        for cluster, record in strategy.cluster_arrays.items()
    }
    return _found(strategy.clusters, models)


def by_nvflare(behave: Behaviour, folder: Path, num_rounds: int = 2, **rules: Any) -> Found:
    """NVFlare's controller, and scripts around its Client API.

    Args:
        behave: what sites send.
        folder: an empty folder, for the run.
        num_rounds: the number of rounds.
        rules: of the controller.
    """
    from nvflare.client import FLModel

    from tests.sdk.integrations.nvflare.controllers import Answer, LocalSites
    from tests.sdk.integrations.nvflare.scripts import Script

    def changed(name: str) -> Callable[[FLModel, int], FLModel | None]:
        def change(model: FLModel, number: int) -> FLModel | None:
            sent = behave(name, number, Sent(arrays=model.params, examples=int(name[-1])))
            if sent is None:
                return None
            said = {} if sent.examples is None else {"NUM_STEPS_CURRENT_ROUND": sent.examples}
            return FLModel(params=dict(sent.arrays), metrics=dict(sent.metrics), meta=said)

        return change

    (folder / "custom").mkdir()
    save_file(initial(), folder / "custom" / "initial.safetensors")
    sites: dict[str, Answer] = {name: Script(name, changed(name)) for name in SITES}
    begins: dict[str, Any] = {"num_rounds": num_rounds, "initial": "initial.safetensors"}
    LocalSites(sites, folder, **begins, **rules).run()
    models = folder / "modelkin"
    report = json.loads((models / "rounds.json").read_text())[-1]
    return Found(
        groups=sorted(map(tuple, report["clusters"].values())),
        models={
            name: _bits(load_file(models / f"cluster-{cluster}.safetensors"))
            for cluster, names in report["clusters"].items()
            for name in names
        },
        weights=report["weights"],
        down=report["weighted_down"],
        left_out=report["left_out"],
    )


def _names() -> dict[int, str]:
    return {int(name.removeprefix("site-")): name for name in SITES}


def _honest(model: Model, name: str) -> Sent:
    return Sent(arrays=trained(model, name), examples=int(name[-1]))


def _bits(model: Model) -> dict[str, bytes]:
    return {name: str(values.dtype).encode() + values.tobytes() for name, values in model.items()}


def _found(clusters: Any, models: Mapping[int, Model]) -> Found:
    """What came of it, by ``RoundClusters``: its reasons of the clients that answered.

    Why another one did not answer, Flower says there, and NVFlare under ``silent``.
    """
    named = clusters.named
    of = {node: name for node, name in _names().items() if node in clusters.replied}
    return Found(
        groups=sorted(tuple(names) for names in named.values()),
        models={name: _bits(models[number]) for number, names in named.items() for name in names},
        weights={_names()[node]: share for node, share in clusters.weights.items()},
        down={of[node]: why for node, why in clusters.weighted_down.items() if node in of},
        left_out={of[node]: why for node, why in clusters.left_out.items() if node in of},
    )


def _app(name: str, behave: Behaviour) -> ClientApp:
    app, count = ClientApp(mods=[SupportMod(name=name)]), [0]

    @app.train()
    def train(message: Message, context: Context) -> Message:
        count[0] += 1
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        hand_over(importance(name))
        model = {each: array.numpy() for each, array in arrays.items()}
        sent = behave(name, count[0], _honest(model, name))
        if sent is None:
            raise RuntimeError("this site is meant to vanish")
        said = {} if sent.examples is None else {"num-examples": sent.examples}
        records: dict[str, Any] = {
            "arrays": ArrayRecord({each: Array(values) for each, values in sent.arrays.items()}),
            "metrics": MetricRecord({**said, **sent.metrics}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app
