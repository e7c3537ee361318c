"""Averages in shards over NVFlare's tasks: how messages travel, and the server's part.

A question is a task for one site, and its answer the result. Both are in the meta of an FLModel,
which has no arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from nvflare.client import FLModel

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import SummedMeans
from modelkin.integrations.federation.metric_forms import forms_of, odd_forms
from modelkin.integrations.federation.shards import vectors
from modelkin.integrations.federation.shards.leader import RoundLeader
from modelkin.integrations.federation.shards.members import ShardMembers
from modelkin.integrations.federation.shards.messages import (
    ShardMessage,
    opened,
    party_of,
    read,
)
from modelkin.integrations.federation.shards.rounds import ShardRound
from modelkin.integrations.nvflare._messages import META, examples_of, said

__all__ = ["SHARDS", "SiteShards", "check_shards", "make_plan", "packed", "unpacked"]

SHARDS: Final = "shards"
"""The name of a message of the rounds of shards among modelkin's values."""

_SETTINGS: Final = ("aggregators", "conceal", "one_in", "masks", "quantize", "rule", "replicas")

_NO_PART: Final = "it did not answer as ClusterClient does; does its script use one?"

Carry = Callable[[Mapping[int, FLModel]], Mapping[int, FLModel]]


def packed(message: ShardMessage) -> dict[str, Any]:
    """A message as modelkin's values in the meta of an FLModel."""
    found: dict[str, Any] = {"values": dict(message.values)}
    if message.cells is not None:
        found["cells"] = dict(message.cells)
    if message.results is not None:
        results = message.results.items()
        found["results"] = {name: values.astype("<f4").tobytes() for name, values in results}
    return {SHARDS: found}


def unpacked(model: FLModel) -> ShardMessage | None:
    """The message of :func:`packed`; None where there is none.

    Raises:
        InvalidInput: it is damaged.
    """
    found = (said(model) or {}).get(SHARDS)
    if found is None:
        return None

    def make() -> ShardMessage:
        cells, results = found.get("cells"), found.get("results")
        arrays = None
        if results is not None:
            arrays = {str(n): np.frombuffer(each, "<f4") for n, each in results.items()}
        return ShardMessage(dict(found["values"]), None if cells is None else dict(cells), arrays)

    return read("its message", make)


def check_shards(shards: object) -> dict[str, Any]:
    """The settings of averages in shards.

    Raises:
        InvalidParameter: they are no mapping, or one is missing or unknown.
    """
    if not isinstance(shards, Mapping):
        raise InvalidParameter(
            f"shards must be a dictionary, such as {{'aggregators': 3}}, not {shards!r}",
            field="shards",
        )
    for name in shards:
        if name not in _SETTINGS:
            raise InvalidParameter(
                f"shards has no setting {name!r}: its settings are {', '.join(_SETTINGS)}",
                field="shards",
            )
    if "aggregators" not in shards:
        raise InvalidParameter(
            "shards needs the number of aggregators: {'aggregators': 3}", field="shards"
        )
    return dict(shards)


def make_plan(num_values: int, settings: Mapping[str, Any]) -> Plan:
    """The plan of a run.

    Args:
        num_values: the values of the model that is averaged.
        settings: the number of ``aggregators``, and arguments of ``Plan``.

    Raises:
        InvalidParameter: a setting is missing, unknown or out of its range.
    """
    given = dict(settings)
    try:
        return Plan(num_parameters=num_values, shards=given.pop("aggregators"), **given)
    except (KeyError, TypeError) as error:
        raise InvalidParameter(
            f"shards needs aggregators, and knows the settings of a plan: {error}", field="shards"
        ) from None
    except InvalidParameter as error:
        if error.field != "shards":
            raise
        message = str(error).replace("shards", "aggregators", 1)
        raise InvalidParameter(message, field="shards") from None


class SiteShards:
    """The server's part in averages in shards.

    Args:
        plan: the plan of all rounds.
        carry: sends each node a question, and returns the answers of those that gave one.
        present: the names of the connected nodes.
        silence: the reason why a node gave no answer to the last question.
    """

    def __init__(
        self,
        plan: Plan,
        carry: Carry,
        present: Callable[[], Mapping[int, str]],
        silence: Callable[[int], str],
    ) -> None:
        self._members = ShardMembers(plan)
        self._carry, self._present, self._silence = carry, present, silence
        self._outside: dict[int, str] = {}
        self._leader: RoundLeader | None = None
        self.reports: list[dict[str, Any]] = []
        """What each average of the last round gave."""
        self.refused: dict[int, str] = {}
        """The reasons why nodes did not count in the last round."""

    def begin(self) -> None:
        """Let new sites join, and fix the round's roster.

        Raises:
            InvalidParameter: too few sites may aggregate; names why one did not join.
        """
        present = self._present()
        asked = [node for node in present if not self._members.has(node)]
        answers = self._exchange(dict.fromkeys(asked, ShardMessage({"step": "join"})))
        self._outside = {}
        for node, answer in answers.items():
            try:
                joins = partial(party_of, present[node], opened(answer).values)
                self._members.join(node, *read("its join", joins))
            except InvalidInput as error:
                self._outside[node] = str(error)
        try:
            roster, number = self._members.begin(present)
        except InvalidParameter as error:
            reasons = [f"{present[node]}: {why}" for node, why in sorted(self._outside.items())]
            raise InvalidParameter("; ".join([str(error), *reasons]), field="shards") from None
        self._leader = RoundLeader(self._members, roster, number, self._exchange, self._present)

    def training(self, node: int) -> dict[str, Any] | None:
        """What a training message says of shards; None for a site that has not joined."""
        if not self._members.has(node):
            return None
        return packed(ShardMessage(self._current.asked(node, {"step": "train"})))

    def take(self, answers: Mapping[int, FLModel], sent: Sequence[int]) -> None:
        """Take the answers of all sites that were to train."""
        leader = self._current
        for node in sent:
            place = leader.place(node)
            try:
                message = leader.open(node, self._read(node, answers.get(node)))
                if answers[node].params:
                    raise InvalidParameter("it sent its arrays in the clear", field="arrays")
                examples = examples_of(answers[node])
                leader.trained[place] = leader.read_training(message, examples)
            except InvalidInput as error:
                leader.refused[place] = str(error)
        forms = {at: forms_of(answers[leader.node(at)].metrics) for at in leader.trained}
        for place, why in odd_forms(forms).items():
            leader.refused[place] = why
            del leader.trained[place]

    def average(
        self, server_round: int, clusters: Mapping[int, Sequence[int]], sent: Mapping[int, Model]
    ) -> SummedMeans:
        """Average each cluster alone, and all other sites together.

        Args:
            server_round: the number of the round, from 1.
            clusters: the nodes of each cluster.
            sent: the model that each node trained.
        """
        leader = self._current
        skipped = leader.too_few(server_round, clusters)
        models, examples = dict[int | None, Model](), dict[int | None, dict[int, int]]()
        self.reports, self.refused = [], {**self._outside, **leader.by_node(leader.refused)}
        for cluster, done in leader.lead_groups(clusters, skipped):
            self.refused |= leader.by_node(done.refused)
            self.reports.append(self._report(cluster, done))
            update = done.update
            if update is not None:
                nodes = {leader.node(p): leader.trained[p].examples for p in done.members}
                base = vectors.average([sent[n] for n in nodes], list(nodes.values()))
                models[cluster] = vectors.add_update(base, update)
                examples[cluster] = nodes
        return SummedMeans(models, examples, self.refused)

    def _report(self, cluster: int | None, done: ShardRound) -> dict[str, Any]:
        leader = self._current
        return {
            "cluster": cluster,
            "members": [leader.roster.parties[place].id for place in done.members],
            "kept": {str(shard): why for shard, why in sorted(done.kept.items())},
            "lost": {leader.roster.parties[p].id: why for p, why in sorted(done.lost.items())},
            "attempts": done.attempts,
            "bytes": done.num_bytes,
            "digest": leader.roster.digest.hex(),
        }

    @property
    def _current(self) -> RoundLeader:
        assert self._leader is not None
        return self._leader

    def _exchange(self, messages: Mapping[int, ShardMessage]) -> dict[int, ShardMessage | str]:
        asked = {n: FLModel(params={}, meta={META: packed(each)}) for n, each in messages.items()}
        answers = self._carry(asked) if asked else {}
        return {node: self._read(node, answers.get(node)) for node in messages}

    def _read(self, node: int, answer: FLModel | None) -> ShardMessage | str:
        """A site's message, or the reason why there is none."""
        if answer is None:
            return self._silence(node)
        try:
            message = unpacked(answer)
        except InvalidInput as error:
            return str(error)
        return _NO_PART if message is None else message
