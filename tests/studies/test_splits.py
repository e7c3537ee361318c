"""How the studies deal samples to clients."""

from __future__ import annotations

import numpy as np
import pytest

from studies.settings import DATA, FILES, SPLITS, Setting
from studies.splits import pathological, split_of


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("data", sorted({*DATA} - {*FILES}))
def test_no_two_clients_share_a_sample(data: str, split: str) -> None:
    """Samples are dealt once, none of them is tested on, and all clients have equally many."""
    found = split_of(Setting(data, split=split, clients=20, seed=3))
    dealt = np.concatenate(found.clients)
    assert len(set(dealt.tolist())) == dealt.size
    assert not set(dealt.tolist()) & set(found.test.tolist())
    assert len({len(own) for own in found.clients}) == 1
    for own, counts in zip(found.clients, found.counts, strict=True):
        assert np.bincount(found.labels[own], minlength=10).tolist() == counts.tolist()


@pytest.mark.parametrize(("share", "held"), [(0.2, 2), (0.3, 3)])
def test_pathological_clients_have_whole_classes(share: float, held: int) -> None:
    """Each has so many classes, equally many of each, and each class has equally many clients."""
    counts = pathological(np.full(10, 90), clients=40, share=share, rng=np.random.default_rng(0))
    assert {held} == set((counts > 0).sum(axis=1).tolist())
    assert {4 * held} == set((counts > 0).sum(axis=0).tolist())
    assert len(np.unique(counts)) == 2


@pytest.mark.parametrize(("classes", "held"), [(20, 4), (100, 20)])
def test_many_classes_are_dealt_whole(classes: int, held: int) -> None:
    """Where hands have many classes, none has one twice, and all classes go round equally."""
    stock = np.full(classes, 480)
    counts = pathological(stock, clients=40, share=0.2, rng=np.random.default_rng(0))
    assert {held} == set((counts > 0).sum(axis=1).tolist())
    assert {8} == set((counts > 0).sum(axis=0).tolist())
    assert {0, 60} == set(counts.ravel().tolist())


def test_wrong_settings_are_named() -> None:
    """Data, splits and counts that there are not are errors that say which."""
    with pytest.raises(ValueError, match="no data called 'letters'"):
        split_of(Setting("letters"))
    with pytest.raises(ValueError, match=r"no split called 'Dir\[1\]'"):
        split_of(Setting(split="Dir[1]"))
    with pytest.raises(ValueError, match="7 clients of 2 classes each"):
        split_of(Setting(split="Patho(20%)", clients=7))


def test_a_setting_is_the_same_at_each_run() -> None:
    """The same setting deals the same samples, another seed others."""
    one, same, other = (split_of(Setting(seed=seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.clients, same.clients, strict=True))
    assert not np.array_equal(one.clients[0], other.clients[0])


@pytest.mark.parametrize("samples", [36, 100])
def test_synthetic_clients_have_as_many_samples_as_asked(samples: int) -> None:
    """To the last one, and a cell of them has a name of its own."""
    setting = Setting("synthetic", clients=8, samples=samples)
    found = split_of(setting)
    assert {samples} == {len(own) for own in found.clients}
    assert setting.name == f"{Setting('synthetic', clients=8).name}-{samples}"
