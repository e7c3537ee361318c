"""Models of groups that take steps without rounds, while clusters change."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.integrations.federation.buffered_models import BufferedModels


class Federation:
    """Clients whose training adds their own number to the model's one value."""

    def __init__(self, size: int = 2) -> None:
        self.groups: dict[int, int] = {}
        self.models = BufferedModels(
            {"x": np.zeros(1)}, size=size, max_staleness=10, group_of=self.groups.get
        )

    def ask(self, *nodes: int) -> None:
        for node in nodes:
            lent = self.models.offer(node)
            assert lent is not None
            self.models.lend(node, lent)

    def answer(self, *nodes: int, at: float) -> None:
        """Answer; all of them received a model of this value."""
        for node in nodes:
            self.models.take(node, {"x": np.array([at + node])}, 1.0)

    def values(self) -> dict[int | None, float]:
        return {group: float(model["x"][0]) for group, model in self.models.models.items()}


def test_a_step_waits_for_all_that_can_make_it() -> None:
    """Fewer than the size make a step once no other client can send an update."""
    found = Federation(size=3)
    found.ask(1, 2)
    found.answer(1, at=0)
    assert [] == found.models.ready([1, 2])
    found.answer(2, at=0)
    assert [] == found.models.ready([1, 2, 3])  # 3 is connected, and new
    assert [None] == found.models.ready([1, 2])
    found.models.step(None)
    assert {None: 1.5} == found.values()
    assert [] == found.models.ready([1, 2])


def test_a_client_trains_a_version_once() -> None:
    """It waits for the next version, and for no other client."""
    found = Federation()
    found.ask(1, 2)
    assert found.models.offer(1) is None
    found.answer(1, at=0)
    assert found.models.offer(1) is None
    found.answer(2, at=0)
    version, _ = found.models.step(None)
    lent = found.models.offer(1)
    assert lent is not None
    assert (1, 1.5) == (version, lent.model["x"][0])
    assert version == lent.version


def test_clusters_that_divide_go_on_from_their_model() -> None:
    """A new cluster begins where its clients were, and what waits moves with its client."""
    found = Federation()
    found.groups.update(dict.fromkeys((1, 2, 3, 4), 0))
    found.ask(1, 2, 3, 4)
    found.answer(1, 2, at=0)
    found.models.step(0)
    found.answer(3, at=0)
    found.groups.update({3: 1, 4: 1})
    found.answer(4, at=0)
    assert {0: 1.5, 1: 1.5} == found.values()
    assert [1] == found.models.ready([1, 2, 3, 4])
    _, counted = found.models.step(1)
    assert [("3", 1), ("4", 1)] == [(each.client, each.staleness) for each in counted]
    assert found.values() == pytest.approx({0: 1.5, 1: 1.5 + 3.5 / 2**0.5})
    assert {} == found.models.left_out


def test_an_update_of_another_clusters_model_is_left_out() -> None:
    """A client that moved trained what its cluster never was; its next update counts."""
    found = Federation()
    found.groups.update({1: 0, 2: 0, 3: 1, 4: 1})
    found.ask(1, 2, 3, 4)
    found.answer(1, 2, 3, 4, at=0)
    found.models.step(0)
    found.models.step(1)
    found.ask(1, 2)
    found.answer(1, at=1.5)
    found.groups.update({1: 1, 2: 1})
    found.answer(2, at=1.5)
    assert found.models.left_out[1].startswith("its cluster is 1 now, and it trained version 1")
    assert found.models.left_out[2] == "it trained version 1, which is of another model"
    found.models.left_out.clear()
    assert {1: 3.5} == found.values()
    found.ask(1, 3)
    found.answer(1, 3, at=3.5)
    found.models.step(1)
    assert {1: 5.5} == found.values()
    assert {} == found.models.left_out


def test_a_client_that_failed_is_asked_after_the_next_step() -> None:
    """Not at once, which would fail again and again; and a new one is new still."""
    found = Federation(size=1)
    found.ask(1, 2)
    found.models.refuse(2, "its app failed")
    assert found.models.offer(2) is None
    assert {2: "its app failed"} == found.models.left_out
    found.answer(1, at=0)
    found.models.step(None)
    lent = found.models.offer(2)
    assert lent is not None
    assert 0 == lent.version


def test_a_client_that_is_forgotten_is_new_and_its_update_counts() -> None:
    """What it sent before waits on; what it trains of the first weights again does not count."""
    found = Federation()
    found.ask(1, 2)
    found.answer(1, at=0)
    found.models.forget(1, "it is gone")
    assert {None: 0.0} == found.values()
    found.ask(1)
    found.answer(1, at=0)
    assert "it has trained version 0 before" == found.models.left_out[1]
    found.answer(2, at=0)
    found.models.step(None)
    assert {None: 1.5} == found.values()


def test_an_update_waits_on_where_all_its_cluster_is_forgotten() -> None:
    """The cluster's model takes the step, and is gone once another client answers."""
    found = Federation()
    found.groups |= {1: 0, 2: 1, 3: 1}
    found.ask(1, 2, 3)
    found.answer(1, at=0)
    found.models.forget(1, "it is gone")
    found.answer(2, 3, at=0)
    assert {0: 0.0, 1: 0.0} == found.values()
    assert [0, 1] == found.models.ready([2, 3])
    _, counted = found.models.step(0)
    assert ["1"] == [each.client for each in counted]
    found.models.step(1)
    assert {0: 1.0, 1: 2.5} == found.values()
    found.ask(2)
    found.answer(2, at=2.5)
    assert {1: 2.5} == found.values()
