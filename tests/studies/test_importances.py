"""Kinds and estimators of importance, beside autograd of single samples, numpy and scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax
from torch.utils.data import DataLoader, TensorDataset

from modelkin.torch import fisher_importance
from studies import page
from studies.cells import Cells, write_cell
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import DIRICHLET, Setting
from studies.tables import importances
from studies.tables.importances import (
    BRIGHT,
    CLEAN,
    DATA,
    EMPIRICAL,
    IMPROVED,
    KINDS,
    MISLABELLED,
    TRUE,
)

SETTING = Setting(network="mlp", clients=8)
SQUARES = np.random.default_rng(0).standard_exponential((36, 50)).astype(np.float32)


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def _squared(model: nn.Module, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
    return torch.cat([each.flatten() for each in found]) ** 2


def test_squares_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample alone: by its label, by all labels of the model, and by the length of p - y."""
    monkeypatch.setattr(importances, "_FLOATS", 500)  # a few samples at once
    model, samples = _network(), torch.randn(9, 6) * 3
    labels = torch.arange(9) % 4
    found = importances.squares_of(model, samples, labels, 0)
    for at, (sample, label) in enumerate(zip(samples, labels, strict=True)):
        logits = model(sample)
        logs = log_softmax(logits, 0)
        by_label = torch.stack([_squared(model, -each) for each in logs])
        assert found[EMPIRICAL][at] == pytest.approx(by_label[label].numpy(), rel=1e-4, abs=1e-9)
        true = (logs.exp()[:, None] * by_label).sum(dim=0).detach()
        assert found[TRUE][at] == pytest.approx(true.numpy(), rel=1e-4, abs=1e-9)
        own = cross_entropy(logits[None], label[None])
        slope = torch.autograd.grad(own, logits, retain_graph=True)[0]
        improved = (by_label[label] / slope.square().sum()).numpy()
        assert found[IMPROVED][at] == pytest.approx(improved, rel=1e-4, abs=1e-9)
        drawn = found["true Fisher, one label drawn"][at]
        assert any(drawn == pytest.approx(each.numpy(), rel=1e-4, abs=1e-9) for each in by_label)


def test_drawn_labels_are_the_model_s() -> None:
    """Over many draws, the mean of one label's squares is the true Fisher, whatever the labels."""
    model, sample = _network(), torch.randn(1, 6)
    many = sample.expand(20_000, -1)
    found = importances.squares_of(model, many, torch.zeros(20_000, dtype=torch.int64), 1)
    drawn = found["true Fisher, one label drawn"].astype(np.float64).mean(axis=0)
    assert drawn == pytest.approx(found[TRUE][0], rel=0.05, abs=1e-3)


def test_the_empirical_fisher_is_the_product_s() -> None:
    """The mean of the squares is what clients of the service select supports by."""
    federation = Federation.of(SETTING)
    samples, labels = federation.samples[0][:20], federation.labels[0][:20]
    mean = importances.squares_of(federation.model, samples, labels, 0)[EMPIRICAL].mean(axis=0)
    assert mean == pytest.approx(federation.importance_of(samples, labels), rel=1e-3, abs=1e-9)


def test_a_loss_gives_the_improved_fisher() -> None:
    """The product has it by a loss that is divided by the length of p - y."""
    federation = Federation.of(SETTING)
    samples, labels = federation.samples[0][:20], federation.labels[0][:20]

    def loss(output: Tensor, target: Tensor) -> Tensor:
        error = output.softmax(-1) - torch.eye(output.shape[-1])[target]
        scaled: Tensor = cross_entropy(output, target) / error.detach().norm()
        return scaled

    loader = DataLoader(TensorDataset(samples, labels), batch_size=7)
    found = fisher_importance(federation.model, loss, loader).numpy()
    rows = importances.squares_of(federation.model, samples, labels, 0)
    assert rows[IMPROVED].mean(axis=0) == pytest.approx(found, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("blocks", [8, 9])
def test_a_median_of_means_is_numpy_s(blocks: int) -> None:
    """Of an even and of an odd number of blocks, that divide the samples or do not."""
    means = [block.mean(axis=0) for block in np.array_split(SQUARES, blocks)]
    expected = np.median(means, axis=0)
    assert importances.median_of_means(SQUARES, blocks) == pytest.approx(expected)


def test_a_trimmed_mean_is_scipy_s() -> None:
    """With an eighth less at each end."""
    assert importances.trimmed_mean(SQUARES) == pytest.approx(stats.trim_mean(SQUARES, 1 / 8))


def test_long_gradients_are_clipped() -> None:
    """Each gradient is cut to the median length, one by one; one far out changes little."""
    gradients = np.sqrt(SQUARES.astype(np.float64))
    gradients[0] *= 1e6
    longest = np.sqrt(np.median((gradients**2).sum(axis=1)))
    cut = [each * min(1, longest / np.linalg.norm(each)) for each in gradients]
    expected = np.square(cut).mean(axis=0)
    found = importances.clipped((gradients**2).astype(np.float32))
    assert found == pytest.approx(expected, rel=1e-4)
    assert found.max() < 10 * SQUARES.mean(axis=0).max()


def test_a_tenth_of_the_samples_is_changed() -> None:
    """Each data set has as many samples; other labels differ, and bright samples have their own."""
    dealt, truth = torch.randn(30, 5), torch.arange(30) % 4
    generator = np.random.default_rng(0)
    samples, labels, at = importances.variants(dealt, truth, 4, generator)
    assert sorted(at[CLEAN]) == [*range(30)]
    for data, own in at.items():
        assert len(own) == 30
        changed = own[own >= 30]
        assert len(changed) == (0 if data == CLEAN else 3)
        originals = {*range(30)} - {*own.tolist()}
        scale = 10 if data == BRIGHT else 1
        for copy in changed:
            (source,) = (each for each in originals if (dealt[each] * scale == samples[copy]).all())
            assert (labels[copy] != truth[source]) == (data == MISLABELLED)


def test_common_weights_are_trained_on_all_samples() -> None:
    """The model gets most samples right, and the federation's own stays as it was."""
    federation = Federation.of(SETTING)
    samples, labels = federation.samples.flatten(0, 1), federation.labels.flatten()

    def right(model: nn.Module) -> float:
        return float((model(samples).argmax(1) == labels).double().mean())

    assert right(importances.trained(federation).model) > 0.8
    assert right(federation.model) < 0.5


@pytest.mark.slow
def test_a_cell_has_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true Fisher does not change with labels, and few samples far out move the plain mean."""
    monkeypatch.setattr(importances, "_WATCHED", 1)
    with Hub() as hub:  # that is not asked
        found = importances.figures(Setting(network="mlp", clients=20), hub)
    assert len(found) == 2 * len(DATA) * len(KINDS)
    before = importances.COMMON
    true, plain, robust = (
        {data: found[importances.row(before, data, kind)] for data in DATA}
        for kind in (TRUE, EMPIRICAL, "clipped gradients")
    )
    assert true[MISLABELLED]["S with clean"] == pytest.approx(1, abs=0.01)
    assert true[CLEAN]["S with empirical"] < 1 == plain[CLEAN]["S with empirical"]
    assert plain[BRIGHT]["S with clean"] < robust[BRIGHT]["S with clean"]


def test_the_page_shows_each_kind(tmp_path: Path) -> None:
    """Gains over the empirical Fisher, recall by data, stability and overlaps."""
    names = ("R@8", "rho", "S with clean", "S with empirical", "R@8 among empirical")
    weights = (importances.COMMON, importances.TRAINED)
    for split in DIRICHLET:
        for seed in range(2):
            setting = Setting(split=split, seed=seed)
            figures = {
                importances.row(each, data, kind): dict.fromkeys(names, 0.5 + 0.1 * (kind == TRUE))
                for each in weights
                for data in DATA
                for kind in KINDS
            }
            head = {"study": importances.NAME, "setting": setting.measured}
            write_cell(tmp_path / importances.NAME / f"{setting.name}.json", head, figures)
    made = page.written(Cells(tmp_path), judged=False)[page.FOLDER / "supports.md"]
    assert f"| {TRUE} | +0.100 to +0.100, 4 of 4 | +0.100 to +0.100, 4 of 4 |" in made
    assert f"| {weights[1]} | {EMPIRICAL} | 0.500 ± 0.000 |" in made
    assert all(kind in made for kind in KINDS)
