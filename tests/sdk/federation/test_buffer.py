"""A model that takes steps by buffered updates, against fractions and FedAvg's mean."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import sqrt

import numpy as np
import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.buffer import Counted, ModelBuffer, Update, staleness_weight

SHAPES = {"weight": (3, 4), "bias": (5,)}


def drawn(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in SHAPES.items()}


def trained(buffer: ModelBuffer, seed: int, weight: float = 1.0) -> Update:
    """A client's training of the model that there is now."""
    return Update(buffer.version, buffer.model, drawn(seed), weight)


def buffer_of(size: int = 2, **how: float) -> ModelBuffer:
    return ModelBuffer(drawn(0), **{"size": size, "max_staleness": 5, **how})  # type: ignore[arg-type]


def test_all_clients_in_one_buffer_are_averaged() -> None:
    """Without a stale update and at a rate of 1, a step is FedAvg's mean, to one rounding."""
    buffer = buffer_of(size=4)
    weights = [3.0, 1.0, 4.0, 2.0]
    for client, weight in enumerate(weights):
        buffer.add(f"client-{client}", trained(buffer, client + 1, weight))
    assert buffer.is_full
    shares = [each.share for each in buffer.step()]
    assert sum(shares) == pytest.approx(1)
    for name, found in buffer.model.items():
        models = [drawn(client + 1)[name].astype(np.float64) for client in range(4)]
        assert np.abs(found - np.average(models, axis=0, weights=weights)).max() < 1e-6
        assert found.dtype == np.float32


def test_steps_are_those_of_fractions() -> None:
    """Ten steps of clients of all speeds are the recursion in whole numbers, to the last place."""
    rng, rate = np.random.default_rng(7), 0.5
    buffer = buffer_of(size=3, rate=rate)
    lent = {f"client-{each}": trained(buffer, 100 + each) for each in range(6)}
    for number in range(10):
        sent = rng.choice(sorted(lent), 3, replace=False).tolist()
        before, updates = buffer.model, {client: lent[client] for client in sent}
        for client, update in updates.items():
            buffer.add(client, update)
        stale = {each.client: each.staleness for each in buffer.step()}
        assert stale == {c: number - update.version for c, update in updates.items()}
        for name, found in buffer.model.items():
            for at, value in np.ndenumerate(found):
                wanted = Fraction(float(before[name][at]))
                for client, update in updates.items():
                    step = Fraction(float(update.trained[name][at])) - Fraction(
                        float(update.received[name][at])
                    )
                    wanted += Fraction(rate) * step / 3 * Fraction(1 / sqrt(1 + stale[client]))
                assert abs(Fraction(float(value)) - wanted) <= abs(wanted) * Fraction(2) ** -23
        for client in sent:
            lent[client] = trained(buffer, int(rng.integers(1000)))


def test_the_order_of_arrival_changes_no_bit() -> None:
    """Any order of a step's updates gives the same bits, and the same list of what counted."""
    found = list[bytes]()
    lists = list[list[Counted]]()
    for order in permutations(range(4)):
        buffer = buffer_of(size=4)
        for client in order:
            buffer.add(f"client-{client}", trained(buffer, client + 1, 0.1 + client))
        lists.append(buffer.step())
        found.append(b"".join(array.tobytes() for array in buffer.model.values()))
    assert 1 == len(set(found))
    assert all(lists[0] == each for each in lists)
    assert ["client-0", "client-1", "client-2", "client-3"] == [c.client for c in lists[0]]


def test_a_stale_update_counts_less() -> None:
    """1 / sqrt(1 + s): one, then 0.71, 0.58, a half."""
    assert [1.0, 1 / sqrt(2), 1 / sqrt(3), 0.5] == [staleness_weight(s) for s in range(4)]
    buffer = buffer_of(size=1)
    late = trained(buffer, 1)
    for number in range(3):
        buffer.add("quick", trained(buffer, 2 + number))
        buffer.step()
    before = buffer.model["bias"].astype(np.float64)
    buffer.add("slow", late)
    assert [Counted("slow", 3, 0.5)] == buffer.step()
    wanted = before + 0.5 * (drawn(1)["bias"].astype(np.float64) - drawn(0)["bias"])
    assert np.array_equal(wanted.astype(np.float32), buffer.model["bias"])


def test_whole_numbers_are_rounded() -> None:
    """A counter of batches stays a whole number."""
    buffer = ModelBuffer({"batches": np.array(10)}, size=2, max_staleness=0)
    for client, value in enumerate((13, 14)):
        buffer.add(str(client), Update(0, buffer.model, {"batches": np.array(value)}, 1.0))
    buffer.step()
    assert buffer.model["batches"].dtype.kind == "i"
    assert 14 == buffer.model["batches"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"weight": np.zeros((3, 4), np.float32)}, "another layout: the model has 'bias'"),
        ({**drawn(1), "bias": np.zeros(4, np.float32)}, r"the shape \[4\], not \[5\]"),
        ({**drawn(1), "bias": np.full(5, np.nan, np.float32)}, "NaN or infinite"),
        ({**drawn(1), "bias": np.full(5, -np.inf, np.float32)}, "NaN or infinite"),
        ({**drawn(1), "bias": np.full(5, 1e300)}, "infinite in float32"),
        ({**drawn(1), "bias": np.array(["a"] * 5)}, "is of <U1"),
    ],
)
def test_a_bad_update_is_left_out(bad: dict[str, np.ndarray], why: str) -> None:
    """Its reason is told, and the step of the others is as if it had not come."""
    buffer, alone = buffer_of(), buffer_of()
    for each in (buffer, alone):
        each.add("a", trained(each, 1))
    with pytest.raises(InvalidParameter, match=why):
        buffer.add("b", Update(0, buffer.model, bad, 1.0))
    for each in (buffer, alone):
        each.add("c", trained(each, 2))
        each.step()
    assert all(np.array_equal(buffer.model[name], alone.model[name]) for name in SHAPES)


@pytest.mark.parametrize(
    "weight", [0.0, -1.0, float("nan"), float("inf"), 1e308, 10**400, "x", True]
)
def test_a_weight_is_a_number_within_bounds(weight: float) -> None:
    """A client cannot count negatively, for nothing, or without a bound."""
    buffer = buffer_of()
    with pytest.raises(InvalidParameter, match="its weight is"):
        buffer.add("a", trained(buffer, 1, weight))
    assert 0 == len(buffer)


def test_a_client_counts_once_for_a_version() -> None:
    """A repetition is refused while the first one waits, and after it counted."""
    buffer = buffer_of(size=1)
    update = trained(buffer, 1)
    buffer.add("a", update)
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="trained version 0 before"):
            buffer.add("a", trained(buffer_of(), 2))
        if len(buffer):
            buffer.step()
    buffer.add("a", trained(buffer, 3))
    assert 1 == len(buffer)


def test_one_update_under_two_names_counts_once() -> None:
    """In one step; a later one, another version and clients that changed nothing all count."""
    buffer = buffer_of(size=2)
    buffer.add("a", trained(buffer, 1))
    with pytest.raises(InvalidParameter, match="its arrays are those of 'a' to the bit"):
        buffer.add("b", trained(buffer, 1))
    assert len(buffer) == 1
    buffer.step()
    for client in "cd":
        buffer.add(client, Update(buffer.version, buffer.model, buffer.model, 1.0))
    assert ["c", "d"] == [each.client for each in buffer.step()]


def test_staleness_has_a_bound() -> None:
    """An update counts up to the bound; beyond it, and of an unknown version, it does not."""
    buffer = buffer_of(size=1, max_staleness=2)
    late = [Update(0, buffer.model, drawn(each), 1.0) for each in range(2)]
    for number in range(3):
        if number == 2:
            buffer.add("slow", late[0])
        buffer.add("quick", trained(buffer, number))
        buffer.step()
    with pytest.raises(InvalidParameter, match="has taken 3 steps since, 2 at most count"):
        buffer.add("slower", late[1])
    with pytest.raises(InvalidParameter, match="version 9, which is of another model"):
        buffer.add("liar", Update(9, buffer.model, drawn(1), 1.0))


def test_a_copy_takes_updates_of_the_original() -> None:
    """A model that divides goes on twice, and knows what each client has trained."""
    buffer = buffer_of(size=1)
    late = trained(buffer, 1)
    buffer.add("a", trained(buffer, 2))
    buffer.step(7)
    copied = buffer.copy()
    assert 7 == copied.version
    buffer.add("b", trained(buffer, 3))
    buffer.step(8)
    other = trained(buffer, 5)
    copied.add("late", late)
    with pytest.raises(InvalidParameter, match="before"):
        copied.add("a", late)
    with pytest.raises(InvalidParameter, match="of another model"):
        copied.add("b", other)
    assert [Counted("late", 1, staleness_weight(1))] == copied.step(9)


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"size": 0}, "size"),
        ({"size": 1.5}, "size"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"rate": 0}, "rate"),
        ({"rate": float("inf")}, "rate"),
    ],
)
def test_arguments_have_ranges(how: dict[str, float], field: str) -> None:
    """What cannot be right is refused with its name."""
    with pytest.raises(InvalidParameter) as refused:
        buffer_of(**how)  # type: ignore[arg-type]
    assert field == refused.value.field


def test_no_update_makes_no_step() -> None:
    """An empty buffer has nothing to add."""
    with pytest.raises(InvalidParameter, match="no update waits"):
        buffer_of().step()
