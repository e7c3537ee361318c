"""Bad clients get one answer of every engine: who is left out and why, and the others' models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.common.serde import message_from_proto, message_to_proto

from tests.sdk.integrations.federation.engines import (
    Behaviour,
    Found,
    Sent,
    by_flower,
    by_nvflare,
    by_rounds,
)
from tests.sdk.integrations.flower.federation import LocalGrid

# NVFlare in its own environment, which `make test-all` makes; elsewhere the rounds that it carries.
ENGINES = ["rounds" if find_spec("nvflare") is None else "nvflare"]

Run = Callable[..., Found]
Spoil = Callable[[Sent], Sent | None]


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a federation without an engine, or in NVFlare."""
    if request.param == "rounds":
        return by_rounds
    return lambda behave, **rules: by_nvflare(behave, tmp_path, **rules)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds say who does not count, which here is on purpose."""
    caplog.set_level("ERROR")


def in_the_second_round(spoil: Spoil) -> Behaviour:
    """Site 2 misbehaves from then on; site 12 is not there."""

    def behave(name: str, number: int, sent: Sent) -> Sent | None:
        if name == "site-12":
            return None
        return spoil(sent) if name == "site-2" and number > 1 else sent

    return behave


def array(name: str, change: Callable[[np.ndarray[Any, Any]], Any]) -> Spoil:
    """Change one array."""
    return lambda sent: replace(
        sent, arrays={**sent.arrays, name: np.asarray(change(sent.arrays[name]))}
    )


def examples(claim: object) -> Spoil:
    return lambda sent: replace(sent, examples=claim)


def metrics(**own: Any) -> Spoil:
    return lambda sent: replace(sent, metrics=own)


def without(name: str) -> Spoil:
    return lambda sent: replace(
        sent, arrays={n: each for n, each in sent.arrays.items() if n != name}
    )


LEFT_OUT: dict[str, tuple[Spoil, str]] = {
    "an array is missing": (without("head.b"), "the model has 'head.b'"),
    "no array": (lambda sent: replace(sent, arrays={}), "it sent no array"),
    "another shape": (array("head.b", lambda values: values[:-1]), "has the shape [19]"),
    "texts": (array("head.b", lambda values: values.astype(str)), "not of numbers"),
    "complex numbers": (array("head.b", lambda values: values * 1j), "not of numbers"),
    "NaN": (array("head.b", lambda values: values * np.nan), "NaN or infinite"),
    "infinite": (array("head.b", lambda values: values + np.float32(np.inf)), "NaN or infinite"),
    "infinite in the model's type": (
        array("head.b", lambda values: values + np.float64(1e300)),
        "infinite in float32",
    ),
    "a counter beyond its type": (array("steps", lambda _: 1e300), "out of range in int64"),
    "no number of examples": (examples(None), "must be a positive number, not None"),
    "no examples": (examples(0), "must be a positive number, not 0"),
    "fewer than none": (examples(-4), "must be a positive number, not -4"),
    "NaN examples": (examples(float("nan")), "must be a positive number, not nan"),
    "infinitely many": (examples(float("inf")), "must be a positive number, not inf"),
    "more than can be": (examples(2**60), "more than 2^53"),
    "a list of examples": (examples([3, 4]), "must be a positive number, not [3, 4]"),
    "another metric": (metrics(accuracy=0.5, loss=1.0), "differ from those of most: loss"),
    "no metric": (metrics(), "differ from those of most: accuracy"),
    "a list of metrics": (metrics(accuracy=[0.5, 1.0]), "accuracy is a list of 2, not a number"),
}


@pytest.mark.parametrize("oddity", LEFT_OUT)
def test_a_bad_client_has_one_verdict(oddity: str, run: Run) -> None:
    """The same words, and the others' models to the bit; in Flower those without its answer."""
    spoil, why = LEFT_OUT[oddity]
    behave = in_the_second_round(spoil)
    expected = by_flower(behave)
    assert {"site-2"} == expected.down.keys()
    assert why in expected.down["site-2"]
    assert 0 == expected.weights["site-2"]
    assert expected == run(behave)
    assert expected.models == without_it()


@cache
def without_it() -> dict[str, dict[str, bytes]]:
    """The models of a federation from which site 2 has vanished."""
    return by_flower(in_the_second_round(lambda _: None)).models


COUNTED: dict[str, Spoil] = {
    "wider numbers": lambda sent: replace(
        sent, arrays={n: each.astype(np.float64) for n, each in sent.arrays.items()}
    ),
    "a counter in halves": array("steps", lambda _: 1007.5),
    "a narrower counter": array("steps", lambda values: values.astype(np.int16)),
    "a metric that is NaN": metrics(accuracy=float("nan")),
    "a metric below 0": metrics(accuracy=-3),
    "a fraction of an example": examples(0.5),
    "very many examples": examples(2**53),
}


@pytest.mark.parametrize("oddity", COUNTED)
def test_an_odd_client_that_counts_does_so_alike(oddity: str, run: Run) -> None:
    """No engine leaves it out, and its part in its cluster's model is the same to the bit."""
    behave = in_the_second_round(COUNTED[oddity])
    expected = by_flower(behave)
    assert {} == expected.down
    assert 0 < expected.weights["site-2"]
    assert expected == run(behave)


@pytest.mark.parametrize("weights", ["equal", "cover", "rarity"])
@pytest.mark.parametrize("claim", [None, 2**60])
def test_no_claim_of_examples_counts_by_other_weights(
    claim: object, weights: str, run: Run
) -> None:
    """Nor does a client need one: the models are those of honest claims."""
    behave = in_the_second_round(examples(claim))
    expected = by_flower(behave, weights=weights)
    assert {} == expected.down
    assert expected == run(behave, weights=weights)
    assert honest(weights) == expected.models


@cache
def honest(weights: str) -> dict[str, dict[str, bytes]]:
    """The models of a federation in which no site misbehaves."""
    return by_flower(in_the_second_round(lambda sent: sent), weights=weights).models


def test_a_client_vanishes_and_is_back_under_another_id(run: Run) -> None:
    """It is a new one, with its kin at once; the others' models are as if it had stayed away."""

    def behave(name: str, number: int, sent: Sent) -> Sent | None:
        return sent if {"site-2": number == 1, "site-12": number > 1}.get(name, True) else None

    expected = by_flower(behave, num_rounds=3)
    assert ("site-12", "site-2", "site-4", "site-6", "site-8") in expected.groups
    assert expected == run(behave, num_rounds=3)


def test_of_two_answers_the_first_counts() -> None:
    """Flower's grid may bring another one; NVFlare's controller has a test of its own."""

    class Repeating(LocalGrid):
        def send_and_receive(self, messages: Any, **named: Any) -> list[Message]:
            answers = list(super().send_and_receive(messages, **named))
            return [*answers, *(_zeros(each) for each in answers)]

    behave = in_the_second_round(lambda sent: sent)
    assert by_flower(behave) == by_flower(behave, grid=Repeating)


def _zeros(answer: Message) -> Message:
    """Another answer of the same client."""
    found = message_from_proto(message_to_proto(answer))
    if found.has_content():
        record = found.content["arrays"]
        assert isinstance(record, ArrayRecord)
        zeros = {n: Array(np.zeros_like(each.numpy())) for n, each in record.items()}
        found.content["arrays"] = ArrayRecord(zeros)
    return found
