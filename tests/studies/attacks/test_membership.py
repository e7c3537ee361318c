"""Scores of membership beside oracles, and where members are obvious or nothing differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from studies import page
from studies.attacks.membership import (
    accuracy,
    area,
    cosine,
    overlap,
    partial_correlation,
    shares_of,
    top,
)
from studies.cells import Cells, write_cell
from studies.tables import membership

CLIENTS, MEMBERS, WIDTH = 40, 10, 400


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Rows of normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    """Of a member and another of one client each, and half of those with equal scores."""
    scores = np.random.default_rng(0).integers(0, 6, (7, 12)).astype(float)
    members, others = scores[:, :6, None], scores[:, None, 6:]
    in_order = (members > others) + (members == others) / 2
    assert area(scores) == pytest.approx(in_order.mean())


def test_one_threshold_is_for_all_clients() -> None:
    """It finds all where one divides all; where each client needs its own, it does not."""
    members = np.r_[np.ones(5), np.zeros(5)]
    assert 1.0 == accuracy(np.tile(members, (4, 1)))
    apart = np.stack([members, members + 10])
    assert 1.0 == area(apart)
    assert 0.5 == accuracy(apart)


def test_sets_are_the_largest_values() -> None:
    """The k largest, none where a value is 0; S is as of Python's sets."""
    masks = top(torch.tensor([[3.0, 0, 2, 1], [0, 0, 5, 0]]), 2)
    assert [[True, False, True, False], [False, False, True, False]] == masks.tolist()
    seen = torch.tensor([True, True, True, False])
    assert overlap(masks, seen) == pytest.approx([2 * 2 / 5, 2 * 1 / 4])


def test_a_partial_correlation_is_that_of_residuals() -> None:
    """What a regression on the known samples, by numpy, leaves of both."""
    own, known, seen = drawn(2, 3, 50), drawn(4, 50, seed=1), drawn(2, 2, 50, seed=2)
    design = np.column_stack([np.ones(50), *known.double().numpy()])

    def residual(row: torch.Tensor) -> npt.NDArray[np.float64]:
        values = row.double().numpy()
        left: npt.NDArray[np.float64] = values - design @ np.linalg.lstsq(design, values)[0]
        return left

    expected = [
        [[np.corrcoef(residual(a), residual(b))[0, 1] for a in of_client] for b in messages]
        for of_client, messages in zip(own, seen, strict=True)
    ]
    assert partial_correlation(own, known, seen) == pytest.approx(np.array(expected), abs=1e-5)


def planted(obvious: bool) -> dict[str, float]:
    """The area of each score, of messages made of the members or of nothing that is asked about."""
    candidates, known = drawn(CLIENTS, 2 * MEMBERS, WIDTH), drawn(6, WIDTH, seed=1)
    sources = candidates[:, :MEMBERS] if obvious else drawn(CLIENTS, MEMBERS, WIDTH, seed=2)
    means, squares = sources.mean(dim=1), sources.square().mean(dim=1)
    supports = top(squares, WIDTH // 10)
    masks = top(candidates.square().flatten(0, 1), WIDTH // 10).view(candidates.shape)
    seen = {
        "gradients": np.stack([cosine(a, b) for a, b in zip(candidates, means, strict=True)]),
        "indices": np.stack([overlap(a, b) for a, b in zip(masks, supports, strict=True)]),
        "own gradients": partial_correlation(candidates, known, means[:, None])[:, 0],
        "own indices": partial_correlation(
            shares_of(candidates), shares_of(known), supports[:, None]
        )[:, 0],
    }
    return {name: area(scores) for name, scores in seen.items()}


def test_obvious_members_are_found() -> None:
    """Where samples have nothing in common, each is seen in the message that has it."""
    found = planted(obvious=True)
    assert all(each > 0.95 for each in found.values())


def test_nothing_is_found_where_nothing_differs() -> None:
    """Messages of other samples say nothing of those that are asked about."""
    found = planted(obvious=False)
    assert all(abs(each - 0.5) < 0.05 for each in found.values())


def test_members_of_four_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of real clients with four samples each: from gradients, from indices, and not if blinded."""
    monkeypatch.setattr(membership, "SAMPLES", (4,))
    monkeypatch.setattr(membership, "ROUNDS", (1, 2))
    (setting, *_) = membership.settings((0,), "digits", "cnn")
    found = membership.figures(setting, None)
    by_attack = {attack: found[membership.row(4, attack)] for attack in membership.ATTACKS}
    assert by_attack[membership.OWN_GRADIENTS]["2"] > 0.95
    assert by_attack[membership.OWN_INDICES]["2"] > 0.95
    assert by_attack[membership.BLINDED]["2"] < 0.75
    assert {"1", "2", "accuracy"} == by_attack[membership.PAPER].keys()


def test_pages_show_each_attack_and_what_does_not_hold(tmp_path: Path) -> None:
    """A table for each split after the first round and the last, and the sentence on indices."""
    columns = [*map(str, membership.ROUNDS), "accuracy"]
    figures = {
        membership.row(count, attack): dict.fromkeys(columns, 0.5 + number / 100)
        for count in membership.SAMPLES
        for number, attack in enumerate(membership.ATTACKS)
    }
    for setting in membership.settings((0, 1), "digits", "cnn"):
        head = {"study": membership.NAME, "setting": setting.measured}
        write_cell(tmp_path / membership.NAME / f"{setting.name}.json", head, figures)
    made = page.written(Cells(tmp_path), judged=False)
    text = made[page.FOLDER / "privacy.md"]
    for split in membership.SPLITS:
        assert f"### Membership on {split}, 2 seeds" in text
    assert 6 == text.count(f"| {membership.PAPER} | 0.580 ± 0.000 |")
    assert "members by an AUC of 0.550" in " ".join(made[page.FOLDER / "limits.md"].split())
