"""``BufferedStrategy``: a federation without rounds, in which no client waits for a slow one.

Each idle client is sent the newest model of its cluster, or of all. Each model takes a step
whenever enough updates are there. See docs/flower-means.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from modelkin.core.clustering.linkage import DEFAULT_SEPARATION, Division
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.buffered_models import BufferedModels
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.messages import check_k_max
from modelkin.integrations.federation.support_clusters import SupportClusters
from modelkin.integrations.flower._buffered_run import BufferedRun, BufferedStep
from modelkin.integrations.flower._cluster_settings import check_kinds

__all__ = ["BufferedStep", "BufferedStrategy"]

log = logging.getLogger("modelkin.integrations")


class BufferedStrategy:
    """A strategy that waits for no client: buffered asynchronous averages.

        strategy = BufferedStrategy(size=5, on_step=print)
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100, timeout=3600)

    Each connected client is sent the model, and the model takes a step when ``size`` updates are
    there. Idle clients then get the new model, and those that still train go on: their updates
    count when they come, the less the more steps they missed. A client trains each version once.
    Where no other client can send an update, fewer make a step.

    With ``per_cluster`` each cluster has a model and a buffer of its own. A new client gets the
    first weights, and clients are clustered by the supports in these answers, which ``SupportMod``
    sends. Those that send none share a model.

    No client evaluates: an app can test the model that it receives before it trains, and report
    that as a metric. The metrics of the clients of a step are averaged as by FedAvg.

    Args:
        size: the updates of a step, at least 1. Choose fewer than there are quick clients, in the
            smallest cluster with ``per_cluster``; else steps wait for slow ones.
        max_staleness: the most steps that a client may miss; its update else does not count.
        rate: the server's learning rate. At 1, steps of few clients move too far; above, the log
            warns.
        per_cluster: whether clusters have models.
        weights: ``"examples"``, those that clients claim; or ``"equal"``, so that no claim counts.
        separation, n_clusters, distance_threshold: with ``per_cluster``, as those of
            ``ClusteredStrategy``.
        k_max: as that of ``ClusteredStrategy``.
        patience: seconds without an answer, or without a connection, after which a client is
            forgotten. Back again, it is new.
        poll: seconds between two looks for answers.
        weighted_by_key: the metric that is a client's weight: a whole number.
        on_step: a function that is called after each step.

    Raises:
        InvalidParameter: an argument is out of its range.

    Source: see ``modelkin.federation.buffer``.
    """

    def __init__(
        self,
        *,
        size: int = 5,
        max_staleness: int = 100,
        rate: float = 0.5,
        per_cluster: bool = False,
        weights: Literal["examples", "equal"] = "examples",
        separation: float = DEFAULT_SEPARATION,
        n_clusters: int | None = None,
        distance_threshold: float | None = None,
        k_max: float | None = None,
        patience: float = 600.0,
        poll: float = 1.0,
        weighted_by_key: str = "num-examples",
        on_step: Callable[[BufferedStep], object] | None = None,
    ) -> None:
        for name, seconds in (("patience", patience), ("poll", poll)):
            if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
                raise InvalidParameter(
                    f"{name} must be a number of seconds above 0, not {seconds!r}", field=name
                )
        if weights not in ("examples", "equal"):
            raise InvalidParameter(
                f"weights must be 'examples' or 'equal', not {weights!r}", field="weights"
            )
        check_kinds({"on_step": on_step}, {"per_cluster": per_cluster})
        if not per_cluster:
            _check_one_model(separation, Division(n_clusters, distance_threshold))
        check_k_max(k_max)
        self._settings: dict[str, Any] = {
            "size": size,
            "max_staleness": max_staleness,
            "rate": rate,
        }
        BufferedModels({}, **self._settings)
        if rate > 1:
            log.warning("rate=%g moves a model beyond the mean of its updates; 1 is the mean", rate)
        self._per_cluster, self._patience, self._poll = per_cluster, patience, poll
        self._weighted_by, self._on_step = weighted_by_key, on_step
        self._equal = weights == "equal"
        self._clustering = (separation, Division(n_clusters, distance_threshold), k_max)
        self._new_supports()
        self.clusters: RoundClusters | None = None
        """The clusters at the end, with ``per_cluster``; None if no client sent a support."""
        self.cluster_arrays: dict[int, ArrayRecord] = {}
        """The model of each cluster at the end, with ``per_cluster``."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train until so many steps are taken, or the time is over.

        Clients that train then are not waited for.

        Args:
            grid: of the ServerApp.
            initial_arrays: the first weights.
            num_rounds: the steps, over all clusters.
            timeout: seconds of the whole run.
            train_config: sent with each model; ``server-round`` is the number of its last step.
            evaluate_fn: called with the first weights, and with each step's number and model.

        Returns:
            The model, and the metrics by step. With ``per_cluster`` its arrays are the mean of the
            clusters' models by their clients, which no client has trained.

        Raises:
            InvalidParameter: the arrays are not of numbers.
        """
        config = ConfigRecord(dict(train_config or {}))
        run = BufferedRun(
            grid, initial_arrays, config, self._settings, self._new_supports(),
            self._weighted_by, self._patience, equal=self._equal,
        )  # fmt: skip
        result = Result()

        def evaluate(number: int, arrays: ArrayRecord) -> None:
            found = None if evaluate_fn is None else evaluate_fn(number, arrays)
            if found is not None:
                result.evaluate_metrics_serverapp[number] = found

        evaluate(0, initial_arrays)
        while run.steps < num_rounds and run.seconds < timeout:
            present = set(grid.get_node_ids())
            run.take_answers(present)
            run.forget(present)
            ready = run.models.ready(present)[: num_rounds - run.steps]
            for group in ready:
                done, metrics = run.step(group)
                if metrics is not None:
                    result.train_metrics_clientapp[done.number] = metrics
                evaluate(done.number, done.arrays)
                if self._on_step is not None:
                    self._on_step(done)
            run.push(present)
            if not ready:
                time.sleep(self._poll)
        self.clusters, self.cluster_arrays = run.clusters, run.cluster_arrays
        result.arrays = run.arrays
        run.log_end()
        return result

    def _new_supports(self) -> SupportClusters[ArrayRecord]:
        """Clusters of no client yet."""
        separation, division, k_max = self._clustering
        return SupportClusters(
            ClusterHistory(separation, division),
            ClientNames(),
            keeps_first=self._per_cluster,
            forget_after=None,
            k_max=k_max,
            when="after {} steps",
            missing="it sent no support: does its app have SupportMod, and call hand_over?",
        )


def _check_one_model(separation: float, division: Division) -> None:
    """Raise :class:`InvalidParameter` for options of clusters, where there is one model."""
    given = {
        "separation": separation != DEFAULT_SEPARATION,
        "n_clusters": division.n_clusters is not None,
        "distance_threshold": division.distance_threshold is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise InvalidParameter(
                f"{name} is for per_cluster=True: without it there is one model, and no cluster; "
                f"give per_cluster=True, or leave {name} out",
                field=name,
            )
