"""Who attacks private supports, and their page, of cells that were made for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import torch
from scipy.spatial import distance
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy

from studies.cells import Cell
from studies.federations import Federation
from studies.sections import paragraphs
from studies.settings import Setting
from studies.tables import privacy
from studies.tables.disclosure import Outsider

VOTES, WIDTH = 20, 300


class Drawn:
    """An outsider whose gradients are drawn: six clients, each with eight members and as many."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.known = torch.randn(5, WIDTH, generator=generator)
        self.candidates = torch.randn(6, 16, WIDTH, generator=generator)

    def asked(self) -> Iterator[torch.Tensor]:
        """Those of each client."""
        return iter(self.candidates)


def voted(gradients: torch.Tensor) -> np.ndarray:
    """1 where a row is among its largest, by numpy."""
    sizes = np.abs(gradients.numpy())
    return np.asarray(sizes >= np.sort(sizes, axis=-1)[..., -VOTES, None], float)


def test_members_are_judged_by_residuals() -> None:
    """Of votes and supports, a regression on the own samples' votes, by numpy, is taken away."""
    outsider = Drawn()
    votes, design = voted(outsider.candidates), np.vstack([np.ones(WIDTH), voted(outsider.known)]).T
    shown, noise = votes[:, :8].max(axis=1), np.random.default_rng(0).random((6, WIDTH)) < 0.3

    def area(supports: np.ndarray) -> float:
        rows = np.concatenate([votes, supports[:, None]], axis=1).reshape(-1, WIDTH).T
        left = (rows - design @ np.linalg.lstsq(design, rows)[0]).T.reshape(6, 17, WIDTH)
        scores = [[np.corrcoef(each, own[-1])[0, 1] for each in own[:-1]] for own in left]
        return float(np.mean([roc_auc_score(np.arange(16) < 8, row) for row in scores]))

    seen = privacy.members_seen(cast(Outsider, outsider), VOTES, [shown, noise.astype(float)])
    assert seen == pytest.approx([area(shown), area(noise.astype(float))], abs=1e-6)
    assert seen[0] > 0.95
    assert abs(seen[1] - 0.5) < 0.1


def gradient(federation: Federation, sample: torch.Tensor, label: torch.Tensor) -> np.ndarray:
    """That of one sample, by backpropagation."""
    loss = cross_entropy(federation.model(sample[None]), label[None])
    parts = torch.autograd.grad(loss, list(federation.model.parameters()))
    return np.asarray(torch.cat([part.flatten() for part in parts]).numpy())


def test_an_outsider_is_not_asked_about_its_own_samples() -> None:
    """Members come first, then tests of their classes; of these a half is the outsider's own."""
    federation = Federation.of(Setting("synthetic", "mlp", "Dir(0.1)", 20, 0, 36))
    outsider = Outsider(federation)
    groups = (
        (federation.samples[0], federation.labels[0]),
        (federation.test_samples[0], federation.test_labels[0]),
    )
    members, tests = (
        np.stack([gradient(federation, *each) for each in zip(*group, strict=True)])
        for group in groups
    )
    asked = next(iter(outsider.asked())).numpy().reshape(2, 20, -1)
    chosen, others, own = (
        distance.cdist(rows, of)
        for rows, of in ((asked[0], members), (asked[1], tests), (outsider.known.numpy(), tests))
    )
    assert max(each.min(axis=1).max() for each in (chosen, others, own)) < 1e-4
    assert not {*others.argmin(axis=1)} & {*own.argmin(axis=1)}
    same = (groups[0][1][chosen.argmin(axis=1)], groups[1][1][others.argmin(axis=1)])
    assert same[0].tolist() == same[1].tolist()
    assert abs(len(own) / len(tests) - 0.5) < 0.05


def cell(setting: Setting, recall: float) -> Cell:
    """One whose recall falls with epsilon."""
    rows = {
        privacy.row(epsilon): {
            "R@4": recall / (number + 1),
            "R@8": recall / (number + 1),
            "label presence": 0.9,
            "membership": 0.5 + number / 10,
        }
        for number, epsilon in enumerate(reversed(privacy.EPSILONS))
    }
    n = setting.samples or 36
    size: dict[str, float] = {"n": n, "clients": setting.clients, "M": 1000, "K": 100, "own": 18}
    return Cell(privacy.NAME, setting, {"federation": size, **rows})


def test_each_number_of_samples_has_a_table() -> None:
    """Rows are epsilons, and chance beside them; seeds of one setting share a table."""
    cells = [cell(setting, 0.6) for setting in privacy.settings((0, 1), "synthetic", "mlp")]
    text = "\n".join(paragraphs.private_supports(cells))
    for samples in privacy.SAMPLES:
        assert f"### {samples} samples a client: synthetic, mlp, Dir(0.1), 2 seeds" in text
    assert "| without noise | 0.600 ± 0.000 |" in text
    assert "| epsilon 1 | 0.100 ± 0.000 |" in text
    assert "| chance | 0.211 | 0.421 |" in text
    assert 3 == text.count("The outsider has about 18 samples of each class of its own.")


def test_the_page_opens_with_what_privacy_costs() -> None:
    """Recall of few samples beside chance, and labels that are seen all the same."""
    cells = [cell(setting, 0.6) for setting in privacy.settings((0,), "digits", "cnn")]
    cells += [cell(setting, 0.6) for setting in privacy.settings((0,), "synthetic", "mlp")]
    few, many = paragraphs.priced(cells)
    assert "R@8 is 0.150 at epsilon 10 and 0.100 at epsilon 1 (without noise 0.600" in few
    assert "chance 0.205" in few
    assert "members: AUC 0.800 at epsilon 10, 1.000 at 1 (without noise 0.500)" in few
    assert "3,600 samples a client, epsilon 1 leaves the label presence at AUC 0.900" in many
