"""What a client of Flower sends beside its reply, and what it does not."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import FitIns, ndarrays_to_parameters
from flwr.compat.common import recorddict_compat
from flwr.serverapp.strategy import FedAvg
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations.federation.messages import SupportMessage
from modelkin.integrations.flower import (
    AdapterStrategy,
    ClusteredStrategy,
    LearngeneStrategy,
    SupportMod,
    hand_over,
)
from modelkin.torch import GradientMoment
from tests.sdk.integrations.flower.federation import LocalGrid, examples, mlp


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "modelkin.integrations"]


def message(kind: str = "train", k: Any = None) -> Message:
    LocalGrid({})  # Flower wants to know who sends
    content = RecordDict({"arrays": ArrayRecord(mlp().state_dict())})
    if k is not None:
        content["modelkin"] = ConfigRecord({"k": k})
    return Message(content, dst_node_id=7, message_type=kind)


def answered(mod: SupportMod, given: Any, sent: Message, context: Context | None = None) -> Any:
    """The modelkin record of the answer of an app that hands this over; None where it has none."""

    def train(message: Message, context: Context) -> Message:
        if given is not None:
            hand_over(given)
        return Message(RecordDict({"metrics": MetricRecord({"n": 1})}), reply_to=message)

    context = context or Context(1, 7, {}, RecordDict(), {})
    return mod(sent, context, train).content.get("modelkin")


IMPORTANCE = np.random.default_rng(3).lognormal(sigma=2, size=500).astype(np.float32)


def test_the_record_holds_the_support() -> None:
    """The message holds the support of the importance, selected with the mod's options."""
    record = answered(SupportMod(coverage=0.5), IMPORTANCE, message())
    support = modelkin.select_support(IMPORTANCE, coverage=0.5)
    assert SupportMessage(support, support.k) == SupportMessage.from_values(record)


def test_the_servers_k_is_followed() -> None:
    """The K that the server sends is used, and the client's own is reported beside it."""
    offer = SupportMessage.from_values(answered(SupportMod(), IMPORTANCE, message(k=33)))
    assert modelkin.select_support(IMPORTANCE, k=33) == offer.content
    assert modelkin.select_support(IMPORTANCE).k == offer.k_star


@pytest.mark.parametrize("k", [0, -1, 501, "12", 1.5, True, b"x", [3]])
def test_a_k_that_cannot_be_is_ignored(k: Any) -> None:
    """Whatever a server sends as K, the client's own is what it falls back to."""
    offer = SupportMessage.from_values(answered(SupportMod(), IMPORTANCE, message(k=k)))
    assert modelkin.select_support(IMPORTANCE) == offer.content


def test_a_signature_alone_holds_no_index() -> None:
    """With send='signature' the support's bytes are nowhere in what goes out."""
    record = answered(SupportMod("signature", num_perm=64, seed=9), IMPORTANCE, message())
    support = modelkin.select_support(IMPORTANCE)
    assert support.signature(64, 9).to_bytes() == record["data"]
    assert {"kind", "data", "k-star"} == set(record)


def test_a_gradient_moment_may_be_handed_over() -> None:
    """What was averaged while training is asked for its importance."""
    model, (inputs, labels) = mlp(), examples(1)
    moment = GradientMoment(model)
    cross_entropy(model(inputs), labels).backward()
    moment.update()
    offer = SupportMessage.from_values(answered(SupportMod(), moment, message()))
    assert modelkin.select_support(moment.importance()) == offer.content


def test_rounds_are_averaged_in_the_clients_state() -> None:
    """With beta the importance of round n is the sum of all so far, each beta times the next."""
    context = Context(1, 7, {}, RecordDict(), {})
    mod, average = SupportMod(beta=0.8), np.zeros(500)
    for seed in range(3):
        here = np.random.default_rng(seed).random(500, np.float32)
        average = 0.8 * average + 0.2 * here
        offer = SupportMessage.from_values(
            answered(mod, torch.from_numpy(here), message(), context)
        )
        assert modelkin.select_support(average) == offer.content
    answered(mod, np.full(500, np.nan, np.float32), message(), context)
    offer = SupportMessage.from_values(answered(mod, here, message(), context))
    assert modelkin.select_support(0.8 * average + 0.2 * here) == offer.content


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "no support is sent: the app did not call modelkin.s hand_over"),
        (np.full(5, np.nan, np.float32), "no support is sent: .*not finite|NaN|nan"),
        (np.zeros(5, np.float32), "no support is sent"),
    ],
)
def test_a_reply_goes_out_anyway(given: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """An importance that is missing or wrong costs the client its place, never its round."""
    record = answered(SupportMod(name="ward"), given, message())
    assert record is None if given is None else {"refused", "name"} == set(record)
    assert any(re.search(why, line) for line in warned(caplog))


def test_clients_of_the_older_api_send_supports_too() -> None:
    """A NumPyClient hands over as any other app, and its own answer stays what it is."""

    class Client(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            assert {"lr": 0.1} == config
            hand_over(IMPORTANCE)
            return parameters, 10, {"loss": 0.5}

    legacy = ClientApp(client_fn=lambda context: Client().to_client(), mods=[SupportMod()])
    asked = FitIns(ndarrays_to_parameters([np.ones(3)]), {"lr": 0.1})
    sent = message()
    sent.content = recorddict_compat.fitins_to_recorddict(asked, keep_input=True)
    content = legacy(sent, Context(1, 7, {}, RecordDict(), {})).content
    assert (
        modelkin.select_support(IMPORTANCE)
        == SupportMessage.from_values(content["modelkin"]).content
    )
    assert {"loss": 0.5} == recorddict_compat.recorddict_to_fitres(content, True).metrics


def test_evaluation_is_let_through() -> None:
    """Messages that are not about training pass as they are."""
    evaluate: Callable[[Message, Context], Message] = lambda m, c: Message(  # noqa: E731
        RecordDict({"metrics": MetricRecord({"n": 1})}), reply_to=m
    )
    context = Context(1, 7, {}, RecordDict(), {})
    assert ["metrics"] == list(SupportMod()(message("evaluate"), context, evaluate).content)


def test_hand_over_needs_the_mod() -> None:
    """Without a mod around it the call says how to add one."""
    with pytest.raises(InvalidParameter, match=r"ClientApp\(mods=\[SupportMod\(\)\]\)"):
        hand_over(IMPORTANCE)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SupportMod("weights"), "'support' or 'signature'"),
        (lambda: SupportMod(beta=1.0), "beta must be between"),
        (lambda: SupportMod(coverage=2.0), "coverage must be in"),
        (lambda: SupportMod(k_max=20), "k_max must be a share"),
        (lambda: ClusteredStrategy(cast(Any, FedAvg)), r"a class: give an instance, FedAvg\(\)"),
        (lambda: LearngeneStrategy(cast(Any, FedAvg)), r"a class: give an instance, FedAvg\(\)"),
        (lambda: AdapterStrategy(FedAvg), r"a class: give an instance, FedAvg\(\)"),
        (lambda: ClusteredStrategy(FedAvg(), space="digits"), "client and space, or neither"),
    ],
)
def test_bad_arguments_are_refused_at_once(make: Callable[[], Any], why: str) -> None:
    """What cannot be right is refused where it is written."""
    with pytest.raises(InvalidInput, match=why):
        make()
