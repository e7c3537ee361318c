"""``ClusteredFedAvg``: NVFlare's controller of a federation whose clusters have models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.client import FLModel

from modelkin.core.clustering.linkage import DEFAULT_SEPARATION
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.aggregate import MIN_MEMBERS
from modelkin.federation.learngenes.layers import LayerChoice
from modelkin.federation.learngenes.learngene import Learngene
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import (
    ClusteredRounds,
    ClusterRules,
)
from modelkin.integrations.federation.data_clusters import ASK, Answers
from modelkin.integrations.federation.federation_state import FederationState
from modelkin.integrations.federation.kin_robust import KinRobust
from modelkin.integrations.federation.node_weights import WeightName
from modelkin.integrations.federation.shards import vectors
from modelkin.integrations.nvflare._files import read_model, read_state, report_of, write_run
from modelkin.integrations.nvflare._messages import META, said
from modelkin.integrations.nvflare._options import check_number, limits_of
from modelkin.integrations.nvflare._replies import arrays_of, read_reply
from modelkin.integrations.nvflare._shards import SiteShards, check_shards, make_plan
from modelkin.integrations.nvflare._silence import Silence

__all__ = ["ClusteredFedAvg"]

_CHECK_S: Final = 0.2
"""How often the controller looks whether all answers are there."""

PATIENCE_S: Final = 60
"""How long the controller waits for subspaces and about shards, unless it is told."""


class ClusteredFedAvg(ModelController):  # type: ignore[misc]  # nvflare is not installed here
    """Federated averaging with a model for each cluster of sites.

        job.to_server(ClusteredFedAvg(num_rounds=5, initial="initial.safetensors"))

    Sites train by NVFlare's Client API with a ``ClusterClient``. The mean of each cluster is its
    model: from the next round on its sites get it. A site in no cluster gets the mean of all. Where
    the job has a persistor and shares whole models, that keeps the mean of all as well.

    Supports are compared at the weights of the first round: a site that answers for the first time
    gets these, its support is kept, and its training then counts only where its cluster has no
    model yet. With ``by="data"`` each site is asked once for its data subspace, before its first
    round; a newcomer is placed by the nearest centroid, and gets its cluster's model at once.

    After each round the run's folder on the server has ``modelkin/``: a safetensors file for each
    cluster, ``all.safetensors``, ``rounds.json`` with who was in which cluster, and what
    ``before`` needs. A site that fails ends no run, nor
    does one that is silent, where ``timeout`` is given.

    Args:
        num_rounds: the number of rounds.
        initial: a safetensors file with the weights to begin with, in the job's folder of the
            server (``job.add_file_to_server``); without it the persistor has them.
        before: the ``modelkin`` folder of an earlier run, to go on from: its sites are known, and
            new ones are placed in its clusters. Give the same options again.
        by: ``"supports"``, or ``"data"``.
        weights: how sites count in a mean: ``"examples"``, ``"equal"``, ``"cover"`` or
            ``"rarity"``; see ``modelkin.integrations.flower.ClusteredStrategy``.
        robust: whether sites that agree too little with their cluster are left out: True, or a
            ``KinRobust`` with other limits, which a job's configuration has by name.
        separation: see ``modelkin.integrations.flower.ClusteredStrategy``, also for
            ``n_clusters``, ``distance_threshold``, ``forget_after`` and ``recluster_every``.
        n_clusters: the number of clusters; None where it is to be found.
        distance_threshold: in its place, the mean distance from which clusters stay apart.
        forget_after: rounds without an answer after which a site is forgotten; None for never.
        recluster_every: with ``by="data"``, rounds until clusters are found again.
        k_max: the ``k_max`` of the sites' ``ClusterClient``.
        shared: shell patterns of the names of arrays to share, a learngene: sites keep the others.
            None for the whole model.
        min_members: a mean of fewer sites is not taken; None for 3 where a learngene is shared or
            means are taken in shards, and else for 1.
        num_clients: how many sites train in a round, drawn by chance; None for all.
        shards: averages in shards, in which no party sees a site's model: ``{"aggregators": A}``
            and, where they are not the usual ones, the settings ``conceal``, ``one_in``,
            ``quantize``, ``rule`` and ``replicas`` of
            ``modelkin.integrations.flower.ShardedStrategy``.
        timeout: seconds to wait for a round's models. With 0 a site that hangs stops the run, since
            NVFlare notices only those that are gone.
        patience: seconds to wait for subspaces, and for answers about shards.
        persistor_id: the id of the job's persistor, if it has one; None for ``"persistor"``.
            It has to be given where ``initial`` and ``before`` are not.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        num_rounds: int = 5,
        *,
        initial: str = "",
        before: str = "",
        by: str = "supports",
        weights: WeightName = "examples",
        robust: bool | KinRobust | Mapping[str, Any] = False,
        separation: float = DEFAULT_SEPARATION,
        n_clusters: int | None = None,
        distance_threshold: float | None = None,
        forget_after: int | None = None,
        recluster_every: int | None = None,
        k_max: float | None = None,
        shared: Sequence[str] | None = None,
        min_members: int | None = None,
        num_clients: int | None = None,
        shards: Mapping[str, Any] | None = None,
        timeout: int = 0,
        patience: int = PATIENCE_S,
        persistor_id: str | None = None,
    ) -> None:
        super().__init__(persistor_id=persistor_id or "persistor", ignore_result_error=True)
        if not initial and not before and not persistor_id:
            raise InvalidParameter(
                "nothing to begin with: give initial=, the file of the first weights, before=, the "
                "folder of an earlier run, or persistor_id=, the id of the job's persistor",
                field="initial",
            )
        numbers = (
            ("num_rounds", num_rounds, 1),
            ("patience", patience, 1),
            ("timeout", timeout, 0),
            ("num_clients", 1 if num_clients is None else num_clients, 1),
        )
        for name, value, least in numbers:
            check_number(name, value, least)
        if initial and before:
            raise InvalidParameter(
                "initial= cannot be combined with before=, which has the models to go on from",
                field="initial",
            )
        if patience != PATIENCE_S and by == "supports" and shards is None:
            raise InvalidParameter(
                "patience is for by='data' and for shards, whose sites are asked in between: leave "
                "it out, or give timeout",
                field="patience",
            )
        if isinstance(shared, str):
            raise InvalidParameter(
                f"shared is one string: give a list of patterns, shared=[{shared!r}]",
                field="shared",
            )
        # NVFlare writes a job's configuration from attributes that are called like arguments.
        self._num_rounds, self._initial, self._before = num_rounds, initial, before
        self._by, self._weights, self._separation = by, weights, separation
        # A KinRobust has slots, of which NVFlare would write none.
        self._robust = asdict(robust) if isinstance(robust, KinRobust) else robust
        self._n_clusters, self._distance_threshold = n_clusters, distance_threshold
        self._forget_after, self._recluster_every = forget_after, recluster_every
        self._k_max, self._min_members = k_max, min_members
        self._shared = None if shared is None else list(shared)
        self._num_clients, self._timeout, self._patience = num_clients, timeout, patience
        self._choice = None if shared is None else LayerChoice(tensors=shared)
        self._shards = None if shards is None else check_shards(shards)
        self.rules = self._cluster_rules()
        """How sites are clustered and averaged."""
        self._check_shards()
        self._averages: SiteShards | None = None
        ClusteredRounds({}, self.rules)  # refuses rules that are out of their range
        self._silence = Silence()
        self._nodes: dict[str, int] = {}
        self._sent: dict[int, Model] = {}
        self._reports: list[dict[str, Any]] = []

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note the tasks that failed; NVFlare calls it, and tells no one else of them."""
        self._silence.note(event_type, fl_ctx)

    def run(self) -> None:
        """Run all rounds; NVFlare calls it."""
        rounds, done = self._open()
        for server_round in range(done + 1, done + self._num_rounds + 1):
            self.event(AppEventType.ROUND_STARTED)
            if not self._train(rounds, server_round):
                self.info("aborted")
                return
            write_run(Path(self.get_run_dir()) / "modelkin", rounds, self._reports)
            if self.persistor and self._choice is None:
                self.save_model(FLModel(params=dict(rounds.arrays)))

    def _train(self, rounds: ClusteredRounds, server_round: int) -> bool:
        """Carry out a round; False where the run is aborted."""
        present = self._present()
        rounds.begin(server_round, present, lambda new: self._ask(new, present))
        drawn = self.sample_clients(self._num_clients) if self._num_clients else present.values()
        sampled = sorted({self._nodes[name] for name in drawn if name in self._nodes})
        if self._shards is not None:
            return self._train_in_shards(rounds, server_round, sampled)
        self._sent = {node: rounds.model_for(node) for node in sampled}
        meta = {} if rounds.k is None else {META: {"k": rounds.k}}
        messages: dict[int, FLModel] = {}
        for model in self._sent.values():
            messages[id(model)] = FLModel(
                params=dict(model), current_round=server_round - 1, meta=dict(meta)
            )
        asked = {node: messages[id(model)] for node, model in self._sent.items()}
        answers = self._exchange(asked, rounds.names.names, self._timeout)
        if self.abort_signal.triggered:
            return False
        replies = {node: read_reply(answer, self._sent[node]) for node, answer in answers.items()}
        rounds.finish(server_round, replies)
        self._report(rounds, server_round, sampled, self._unanswered(sampled, replies))
        return True

    def _unanswered(self, asked: Sequence[int], answers: Mapping[int, object]) -> dict[int, str]:
        """The reasons why sites that were asked to train sent nothing, by node."""
        names = {node: name for name, node in self._nodes.items()}
        return {node: self._silence.why(names[node]) for node in asked if node not in answers}

    def _report(
        self,
        rounds: ClusteredRounds,
        server_round: int,
        asked: Sequence[int],
        silent: Mapping[int, str],
    ) -> None:
        self._reports.append(report_of(server_round, rounds, silent))
        shown = self._reports[-1].get("clusters", {})
        self.info(f"round {server_round}: clusters {shown}")
        for name, why in self._reports[-1]["silent"].items():
            self.warning(f"round {server_round}: no model of {name}: {why}")
        if len(silent) == len(asked):
            self.error(f"round {server_round}: no site sent a model, so that none has changed")

    def _train_in_shards(
        self, rounds: ClusteredRounds, server_round: int, sampled: Sequence[int]
    ) -> bool:
        """Carry out a round whose models no party sees; False where the run is aborted."""
        names = rounds.names.names
        if self._averages is None:
            plan = make_plan(vectors.num_values(rounds.arrays), self._plan_settings)
            vectors.check_kinds({name: each.dtype for name, each in rounds.arrays.items()})
            self._averages = SiteShards(
                plan, lambda asked: self._exchange(asked, names, self._patience), self._present,
                lambda node: self._silence.why(names[node]),
            )  # fmt: skip
        averages, messages = self._averages, dict[int, FLModel]()
        averages.begin()
        for node in sampled:
            asked = averages.training(node)
            if asked is None:
                continue
            self._sent[node] = rounds.model_for(node)
            values = asked if rounds.k is None else {"k": rounds.k, **asked}
            messages[node] = FLModel(
                params=dict(self._sent[node]), current_round=server_round - 1, meta={META: values}
            )
        answers = self._exchange(messages, names, self._timeout)
        if self.abort_signal.triggered:
            return False
        averages.take(answers, list(messages))
        silent = self._unanswered(list(messages), answers)
        replies = {node: read_reply(answer, self._sent[node]) for node, answer in answers.items()}
        rounds.finish_summed(
            server_round, replies, lambda found: averages.average(server_round, found, self._sent)
        )
        self._report(rounds, server_round, list(messages), silent)
        refused = {names[node]: why for node, why in sorted(averages.refused.items())}
        self._reports[-1] |= {"shards": averages.reports, "refused": refused}
        return not self.abort_signal.triggered

    @property
    def _plan_settings(self) -> dict[str, Any]:
        return {**(self._shards or {}), "min_members": self.rules.min_members}

    def _check_shards(self) -> None:
        """Refuse settings of shards that are out of their range, or that need sites' models."""
        if self._shards is None:
            return
        if self._shards.get("masks", "one") != "one":
            raise InvalidParameter(
                f"masks must be 'one', not {self._shards['masks']!r}: members keep masks of their "
                f"own only where all rounds are of the same sites, and clusters change",
                field="shards",
            )
        make_plan(MAX_PARAMETERS, self._plan_settings)
        if self._weights != "examples" or self.rules.robust is not None:
            raise InvalidParameter(
                "in shards no party sees a site's model: weights must be 'examples', and robust "
                "False",
                field="shards",
            )

    def _open(self) -> tuple[ClusteredRounds, int]:
        """The rounds to carry out, and how many were carried out before."""
        if self._before:
            state, self._reports = read_state(Path(self._before))
            self._check_shared(state)
            rounds = ClusteredRounds(state.arrays, self.rules, state.num_values)
            state.restore(rounds)
            self._nodes = {name: node for node, name in state.names.items()}
            return rounds, state.server_round
        whole = self._initial_model()
        num_values, shared = sum(each.size for each in whole.values()), whole
        if self._choice is not None:
            layout = {name: (str(each.dtype), each.shape) for name, each in whole.items()}
            names = Learngene.of(layout, self._choice, buffers=False).names
            shared = {name: whole[name] for name in names}
        return ClusteredRounds(shared, self.rules, num_values), 0

    def _check_shared(self, state: FederationState) -> None:
        """Refuse to go on with other arrays than the run before has shared."""
        layout = {name: (str(each.dtype), each.shape) for name, each in state.arrays.items()}
        if self._choice is None:
            fits = state.num_values == sum(each.size for each in state.arrays.values())
        else:
            fits = set(Learngene.of(layout, self._choice, buffers=False).names) == layout.keys()
        if not fits:
            raise InvalidParameter(
                f"the run before shared {', '.join(sorted(layout)[:3])}, and shared= names others: "
                f"give the same shared, or begin anew without before",
                field="shared",
            )

    def _initial_model(self) -> dict[str, np.ndarray[Any, Any]]:
        if self._initial:
            folders = [Path(self.get_app_dir()) / name for name in ("config", "custom")]
            paths = [folder / self._initial for folder in folders]
            return read_model(next((path for path in paths if path.exists()), paths[-1]))
        model = self.load_model()
        arrays = arrays_of(getattr(model, "params", None))
        if not arrays:
            raise InvalidParameter(
                "there is no model to begin with: give initial, or the job a persistor",
                field="initial",
            )
        return arrays

    def _present(self) -> dict[int, str]:
        """The names of the connected sites by node; a new site gets the next number."""
        names = sorted(client.name for client in self.engine.get_clients())
        for name in names:
            self._nodes.setdefault(name, len(self._nodes))
        return {self._nodes[name]: name for name in names}

    def _ask(self, nodes: Sequence[int], present: Mapping[int, str]) -> Answers:
        """Ask sites for their subspaces."""
        question = FLModel(params={}, meta={META: {"step": ASK}})
        answers = self._exchange(dict.fromkeys(nodes, question), present, self._patience)
        return {
            node: (said(answers[node]) or {}) if node in answers else self._silence.why(name)
            for node, name in ((node, present[node]) for node in nodes)
        }

    def _exchange(
        self, messages: Mapping[int, FLModel], names: Mapping[int, str], timeout: int
    ) -> dict[int, FLModel]:
        """Send each node its message; return the first answer of each that gave one."""
        found, lock = dict[int, FLModel](), Lock()

        def take(answer: FLModel) -> None:
            node = self._nodes[str(answer.meta["client_name"])]
            with lock:
                if node in messages:
                    found.setdefault(node, answer)

        groups: dict[int, tuple[FLModel, list[str]]] = {}
        for node, message in messages.items():
            groups.setdefault(id(message), (message, []))[1].append(names[node])
        self._silence.begin(timeout)
        for message, targets in groups.values():
            self.send_model(data=message, targets=targets, timeout=timeout, callback=take)
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            time.sleep(_CHECK_S)
        with lock:
            return dict(sorted(found.items()))

    def _cluster_rules(self) -> ClusterRules:
        least = 1 if self._choice is None and self._shards is None else MIN_MEMBERS
        return ClusterRules(
            by=self._by,
            weights=self._weights,
            robust=limits_of(self._robust),
            separation=self._separation,
            n_clusters=self._n_clusters,
            distance_threshold=self._distance_threshold,
            forget_after=self._forget_after,
            recluster_every=self._recluster_every,
            k_max=self._k_max,
            min_members=least if self._min_members is None else self._min_members,
            missing="it sent nothing to compare it by: does its script hand over to ClusterClient?",
        )
