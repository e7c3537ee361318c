"""``ClusterClient``: a site's part, around NVFlare's Client API.

A support contains no values, but reveals which classes a site holds, and so does a signature. A
server that must not learn that must get neither. See docs/nvflare.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
from nvflare import client as flare

from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.federation.client_names import check_client_tags
from modelkin.integrations.federation.data_clusters import ASK
from modelkin.integrations.federation.messages import SupportMessage
from modelkin.integrations.federation.shards import vectors
from modelkin.integrations.federation.shards.client import Seat, ShardClient
from modelkin.integrations.federation.shards.client_state import MemoryState
from modelkin.integrations.federation.shards.messages import ShardMessage
from modelkin.integrations.federation.shards.rounds import check_examples
from modelkin.integrations.federation.support_maker import SupportMaker
from modelkin.integrations.nvflare._messages import (
    EXAMPLES,
    META,
    asks_for_subspace,
    examples_of,
    said,
)
from modelkin.integrations.nvflare._shards import packed, unpacked

__all__ = ["ClusterClient"]

log = logging.getLogger("modelkin.integrations")


class ClusterClient:
    """A site of a federation in clusters.

        flare.init()
        client = ClusterClient()
        for received in client.trainings():
            model.load_state_dict(received.params)
            client.hand_over(fisher_importance(model, loss, loader))  # before any training
            ...
            client.send(flare.FLModel(params=model.state_dict(), meta=...))

    The server knows a site by the name that NVFlare has authenticated. Sites should have supports
    of one size: after the first round the server sends the median of their own choices, and this
    object uses it. The log has a warning where no support can be sent.

    An answer leaves with only the arrays that the server's message had. So layers that a federation
    does not share stay in the script: load what came by ``load_state_dict(..., strict=False)``.

    Args:
        send: ``"support"``, or ``"signature"``: 1 kB, which shows the site's classes nearly as well
            as a support does.
        coverage: see ``modelkin.select_support``; unused if the server sends K.
        k_max: the largest share of indices, in (0, 1]; the controller needs the same one.
        beta: the share of an average over rounds that remains after each round; the paper's is 0.8.
            None uses only each round's importance.
        num_perm: h of the signature.
        seed: 0 to 2^32 - 1; all sites need the same one to be compared.
        subspace: makes the site's data subspace, for ``ClusteredFedAvg(by="data")``. If it fails,
            the site is in no cluster, and the server's log says why.
        private: shell patterns of names of arrays that never leave, whatever the server asks for.
        tags: tags that the server learns.
        shards: what the site demands of averages in shards, for ``ClusteredFedAvg(shards=...)``.
            No array then leaves the site in the clear, whatever the server asks for.

    Raises:
        InvalidInput: an argument is out of its range.
    """

    def __init__(
        self,
        send: str = "support",
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        beta: float | None = None,
        num_perm: int = 256,
        seed: int = 1,
        subspace: Callable[[], Subspace] | None = None,
        private: Sequence[str] = (),
        tags: Sequence[str] = (),
        shards: ShardClient | None = None,
    ) -> None:
        if subspace is not None and not callable(subspace):
            raise InvalidParameter(
                f"give a function that makes a subspace, not {subspace!r}", field="subspace"
            )
        if isinstance(private, str):
            raise InvalidParameter(
                f"private is one string: give a list of patterns, private=[{private!r}]",
                field="private",
            )
        if shards is not None and not isinstance(shards, ShardClient):
            raise InvalidParameter(f"give a ShardClient, not {shards!r}", field="shards")
        if shards is not None and shards.max_staleness:
            raise InvalidParameter(
                "max_staleness is of Flower's ShardMod: a site trains in each of its rounds",
                field="max_staleness",
            )
        self._shards, self._state = shards, MemoryState()
        self._seat: Seat | None = None
        self._received: dict[str, npt.NDArray[Any]] = {}
        self._maker = SupportMaker(
            send, coverage=coverage, k_max=k_max, beta=beta, num_perm=num_perm, seed=seed
        )
        self._subspace, self._private = subspace, tuple(private)
        self._tags = list(check_client_tags(tags))
        self._average: Any = None
        self._shared: frozenset[str] = frozenset()
        self._k: Any = None
        self._message: SupportMessage | str | None = None

    def trainings(self) -> Iterator[flare.FLModel]:
        """The model of each round that this site trains in, until the job ends.

        Questions about the site's data and those of averages in shards are answered in between.
        """
        while flare.is_running():
            received = flare.receive()
            if received is None:
                return
            if asks_for_subspace(received):
                flare.send(flare.FLModel(params={}, meta={META: self._describe_data()}))
                continue
            if not self._is_training(received):
                continue
            self._shared = frozenset(received.params or {})
            self._k = (said(received) or {}).get("k")
            self._message = None
            yield received

    def hand_over(self, importance: Any) -> None:
        """Make the support of this round's model; call it once in each round, before training.

        The importance stays on this machine: only the indices of its largest entries, or their
        signature, leave it. Both show which classes the site holds.

        Args:
            importance: see ``modelkin.select_support``; or a ``modelkin.torch.GradientMoment``.
        """
        try:
            self._message, kept = self._maker.make(importance, self._k, self._average)
        except ModelkinError as error:
            log.warning("no support is sent: %s", error)
            self._message = str(error)
            return
        if self._maker.beta is not None:
            self._average = kept

    def send(self, model: flare.FLModel) -> None:
        """Send the trained model, with this round's support.

        Args:
            model: its arrays by name, and how many examples it was trained on, as
                ``meta={"NUM_STEPS_CURRENT_ROUND": n}``. A site that does not say is left out,
                unless the controller has other ``weights``. What the site tested the received
                model by goes in its ``metrics``, under the names that all sites use.
        """
        examples = examples_of(model)
        if examples is None:
            log.warning("the server is not told how many examples: give meta={%r: n}", EXAMPLES)
        params = {
            name: values for name, values in (model.params or {}).items() if self._leaves(name)
        }
        model.params, values = params, dict[str, Any]()
        if isinstance(self._message, str):
            values = {"refused": self._message, "tags": self._tags}
        elif self._message is not None:
            values = {**self._message.to_values(), "tags": self._tags}
        if self._shards is not None:
            model.params, sealed = {}, self._seal(params, examples)
            values |= packed(sealed)
        if values:
            model.meta = {**(model.meta or {}), META: values}
        self._message = None
        flare.send(model)

    def _is_training(self, received: flare.FLModel) -> bool:
        """Answer a message that asks for no training, or that this site refuses."""
        try:
            asked = unpacked(received)
            if asked is None and self._shards is None:
                return True
            if self._shards is None:
                raise InvalidParameter(
                    "the server averages in shards: give ClusterClient(shards=ShardClient())",
                    field="shards",
                )
            if asked is None:
                raise InvalidParameter(
                    "this site sends no arrays in the clear: the server needs "
                    "ClusteredFedAvg(shards=...)",
                    field="shards",
                )
            name, step = flare.get_site_name(), asked.values.get("step")
            if step == "train":
                self._seat = self._shards.seat(asked.values, name, self._state)
                self._seat.check_new()
                params = (received.params or {}).items()
                self._received = {each: np.array(values) for each, values in params}
                return True
            if step == "join":
                answer = self._shards.join(name, self._state)
            else:
                answer = self._shards.answer(asked, name, self._state)
        except ModelkinError as error:
            answer = ShardClient.refusal(error, self._state)
        flare.send(flare.FLModel(params={}, meta={META: packed(answer)}))
        return False

    def _seal(self, params: Mapping[str, Any], examples: object) -> ShardMessage:
        """The update of this round in sealed cells, or the reason why there is none."""
        seat, self._seat = self._seat, None
        try:
            if seat is None:
                raise InvalidParameter("send one model for each training", field="model")
            trained = {name: np.asarray(values) for name, values in params.items()}
            update = vectors.difference(trained, self._received)
            return seat.trained(update, check_examples(examples))
        except ModelkinError as error:
            return ShardClient.refusal(error, self._state)

    def _leaves(self, name: str) -> bool:
        return name in self._shared and not any(fnmatchcase(name, each) for each in self._private)

    def _describe_data(self) -> dict[str, Any]:
        try:
            if self._subspace is None:
                raise InvalidParameter(
                    "the server clusters by data: give ClusterClient(subspace=...)",
                    field="subspace",
                )
            found = self._subspace()
            if not isinstance(found, Subspace):
                raise InvalidParameter(
                    f"the function made {type(found).__name__}, not a Subspace", field="subspace"
                )
            return {ASK: found.to_bytes(), "tags": self._tags}
        except (ModelkinError, OSError, ValueError) as error:
            log.warning("no subspace is sent: %s", error)
            return {"refused": str(error)}
