"""Draws the pictures of docs/concepts.md, all of scikit-learn's digits.

``python -m docs.plots`` calls it with the other pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from sklearn.datasets import load_digits
from torch import nn

import modelkin
from modelkin import sharing
from modelkin.core.clustering.centring import centre
from modelkin.core.sketching.banding import Banding, collision_probability
from modelkin.core.subspaces.affinity import affinity
from modelkin.plots.style import LIGHT, PALETTE
from modelkin.torch import fisher_importance

Floats = npt.NDArray[np.float64]

BLUE, ORANGE, GREEN = PALETTE[0], PALETTE[1], PALETTE[2]
EMPTY = "#e3e7ee"
SAMPLES = 120
K = 130
BANDING = Banding(64, 4)


def draw(folder: Path) -> None:
    """Write the five pictures."""
    plt.rcParams.update({"font.size": 10, "text.color": LIGHT.ink, "axes.titlesize": 10})
    torch.set_num_threads(1)
    digits = Digits()
    supports = [digits.support(kept, seed) for seed, kept in enumerate(_CLIENTS)]
    drawn = {
        "support": support_and_overlap(supports),
        "signature": signature_and_bands(supports),
        "clusters": clusters_and_centring(digits),
        "shards": shards_of_an_update(digits),
        "subspace": data_subspaces(digits),
    }
    for name, figure in drawn.items():
        path = folder / f"concept-{name}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)


_CLIENTS = ((0, 1, 2), (0, 1, 2), (7, 8, 9), (0, 1, 7), (2, 8, 9), (4, 5, 6), (4, 5, 6), (0, 5, 9))
"""The digits that each client has."""


class Digits:
    """Handwritten digits of 8 x 8 pixels, and a model that all clients begin with."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.x = np.asarray(images, np.float32) / 16
        self.y = np.asarray(labels)
        torch.manual_seed(0)
        self.model = nn.Linear(64, 10, bias=False)

    def rows(self, kept: Sequence[int], seed: int, count: int = SAMPLES) -> npt.NDArray[np.int64]:
        """Some samples of these digits."""
        rng = np.random.default_rng(seed)
        return rng.choice(np.flatnonzero(np.isin(self.y, kept)), count, replace=False)

    def support(self, kept: Sequence[int], seed: int) -> modelkin.Support:
        """What a client with these digits sends."""
        rows = self.rows(kept, seed)
        batch = torch.tensor(self.x[rows]), torch.tensor(self.y[rows])
        importance = fisher_importance(self.model, nn.functional.cross_entropy, [batch])
        return modelkin.select_support(importance, k=K)

    def update(self, kept: Sequence[int], seed: int) -> npt.NDArray[np.float32]:
        """What local training changes in the model."""
        rows = self.rows(kept, seed)
        x, y = torch.tensor(self.x[rows]), torch.tensor(self.y[rows])
        local = nn.Linear(64, 10, bias=False)
        local.load_state_dict(self.model.state_dict())
        optimizer = torch.optim.SGD(local.parameters(), lr=0.5)
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(local(x), y).backward()
            optimizer.step()
        return (local.weight - self.model.weight).detach().numpy().ravel()


def support_and_overlap(supports: list[modelkin.Support]) -> Any:
    """Three clients' supports over one layer; what they share with the first is blue."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    first = _cells(supports[0])
    for panel, at in zip(panels, (0, 1, 2), strict=True):
        own = _cells(supports[at])
        shown = np.where(own & first, 1, np.where(own, 2, 0)).reshape(10, 64)
        colours = ListedColormap([EMPTY, BLUE, ORANGE])
        panel.imshow(shown, colours, aspect="auto", vmin=0, vmax=2, interpolation="nearest")
        kept = ", ".join(map(str, _CLIENTS[at]))
        said = f"{K} of 640" if at == 0 else f"S = {_similar(supports[0], supports[at]):.2f} with A"
        panel.set_title(f"client {'ABC'[at]}, digits {kept}: {said}")
        panel.set_xlabel("weight of each pixel")
        panel.set_xticks([])
        panel.set_yticks(range(10))
    panels[0].set_ylabel("output for the digit")
    return figure


def signature_and_bands(supports: list[modelkin.Support]) -> Any:
    """Which values and bands of two signatures agree, and how often others do."""
    figure, (grid, curve) = plt.subplots(
        1, 2, figsize=(9, 2.9), width_ratios=[2, 1.2], layout="constrained"
    )
    a, b = supports[0].signature(), supports[1].signature()
    equal = (a.values == b.values).reshape(BANDING.bands, BANDING.rows).T
    grid.imshow(equal, ListedColormap([EMPTY, BLUE]), aspect="auto", interpolation="nearest")
    whole = np.flatnonzero(equal.all(axis=0))
    for band in whole:
        box = Rectangle((band - 0.5, -0.5), 1, BANDING.rows, fill=False, edgecolor=ORANGE, lw=2)
        grid.add_patch(box)
    share = equal.mean()
    grid.set_title(
        f"clients A and B: {equal.sum()} of 256 values agree, so J is about {share:.2f}\n"
        f"and S about {2 * share / (1 + share):.2f} "
        f"(exactly {_similar(supports[0], supports[1]):.2f}); {len(whole)} whole bands agree"
    )
    grid.set_xlabel("64 bands")
    grid.set_ylabel("4 values each")
    grid.set_yticks([])
    s = np.linspace(0, 1, 200)
    curve.plot(s, [collision_probability(each / (2 - each), BANDING) for each in s], color=BLUE)
    for one, other in combinations(supports, 2):
        met = _share_a_band(one, other)
        curve.plot(_similar(one, other), float(met), "o", ms=4, color=ORANGE if met else "#8c8c8c")
    curve.set_title("64 x 4: the chance to share a bucket")
    curve.set_xlabel("similarity S; dots: pairs of 8 clients")
    curve.spines[["top", "right"]].set_visible(False)
    return figure


def clusters_and_centring(digits: Digits) -> Any:
    """S of 24 clients whose images are turned four ways, and the same without the mean."""
    turned = [np.rot90(digits.x.reshape(-1, 8, 8), turn, (1, 2)) for turn in range(4)]
    clients = [
        modelkin.fit_subspace(turned[turn][digits.rows(range(10), 10 * turn + at)].reshape(-1, 64))
        for turn in range(4)
        for at in range(6)
    ]
    s = np.array([[affinity(a, b, compare="whole") for b in clients] for a in clients])
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    titles = (
        "S of 24 clients, images turned by 0°, 90°, 180°, 270°",
        "the same without what all share",
    )
    for panel, values, title in zip(panels, (s, centre(s)), titles, strict=True):
        shown = panel.imshow(values, LIGHT.scale, vmin=0, vmax=1, interpolation="nearest")
        figure.colorbar(shown, ax=panel, shrink=0.85)
        panel.set_title(title)
        panel.set_xticks([])
        panel.set_yticks([])
    return figure


def shards_of_an_update(digits: Digits) -> Any:
    """One member's update, what one aggregator of four sees of it, and the average."""
    updates = np.array([digits.update(kept, seed) for seed, kept in enumerate(_CLIENTS[:5])])
    keys = [sharing.new_key() for _ in updates]
    parties = tuple(
        sharing.Party(f"site-{at}", sharing.public_key(key)) for at, key in enumerate(keys)
    )
    plan = sharing.Plan(num_parameters=640, shards=4)
    roster = sharing.Roster(plan, parties)
    current = sharing.Round(1, dict.fromkeys(range(5), SAMPLES), peak=8.0)
    cells: dict[int, dict[int, bytes]] = {shard: {} for shard in range(4)}
    for place, key in enumerate(keys):
        for cell in sharing.Member(roster, place, key).cells(updates[place], current):
            cells[cell.shard][place] = cell.data
    results: dict[int, dict[int, npt.NDArray[np.float32]]] = {}
    for (shard, sent), seat in zip(cells.items(), roster.seats, strict=True):
        aggregator = sharing.Aggregator(roster, seat, keys[seat])
        combined = aggregator.combine(shard, 0, sent, current).values
        assert combined is not None
        results[shard] = {0: combined}
    average = sharing.assemble(roster, current, results)
    first = sharing.assemble(roster, current, {0: {0: np.ones_like(results[0][0])}})
    seen = np.where(first != 0, updates[0], np.nan)
    sealed = np.frombuffer(cells[0][0], np.uint8)[:640].astype(np.float64)
    figure, panels = plt.subplots(1, 4, figsize=(10, 2.6), layout="constrained")
    bound = 0.6 * float(np.abs(updates[0]).max())
    shown = (
        ("the update of member A", updates[0], bound),
        ("what the carrier relays", (sealed - 127.5) / 127.5 * bound, bound),
        (f"what aggregator 1 opens: {np.isfinite(seen).mean():.0%}", seen, bound),
        ("the average of 5, exact", average, bound),
    )
    for panel, (title, values, limit) in zip(panels, shown, strict=True):
        panel.set_facecolor("#ffffff")
        tiles = np.full(640, np.nan)
        tiles[: len(values)] = values
        panel.imshow(_tiles(tiles), "RdBu", vmin=-limit, vmax=limit, interpolation="nearest")
        panel.set_title(title)
        panel.set_xticks([])
        panel.set_yticks([])
    return figure


def data_subspaces(digits: Digits) -> Any:
    """The first directions of three clients' samples, as images."""
    chosen = [(0, 1, 2), (0, 1, 2), (7, 8, 9)]
    fitted = [
        modelkin.fit_subspace(digits.x[digits.rows(kept, 40 + at)])
        for at, kept in enumerate(chosen)
    ]
    figure, panels = plt.subplots(3, 5, figsize=(8, 4.4), layout="constrained")
    for line, client, kept, at in zip(panels, fitted, chosen, range(3), strict=True):
        block = client.blocks[0]
        for rank, panel in enumerate(line):
            image = block.columns[rank][:64].reshape(8, 8)
            limit = float(np.abs(image).max())
            panel.imshow(image, "RdBu", vmin=-limit, vmax=limit, interpolation="nearest")
            panel.set_xticks([])
            panel.set_yticks([])
            panel.set_xlabel(f"weight {block.weights[rank]:.2f}", fontsize=8, labelpad=1)
        s = affinity(fitted[0], client, compare="whole")
        said = "" if at == 0 else f"\nS = {s:.2f} with A"
        label = f"client {'ABC'[at]}\ndigits {', '.join(map(str, kept))}{said}"
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", labelpad=10)
    figure.suptitle("the first directions of each client's samples", fontsize=10)
    return figure


def _cells(support: modelkin.Support) -> npt.NDArray[np.bool_]:
    filled = np.zeros(640, bool)
    filled[np.asarray(support.indices)] = True
    return filled


def _similar(one: modelkin.Support, other: modelkin.Support) -> float:
    return float(modelkin.similarity(one, other))


def _share_a_band(one: modelkin.Support, other: modelkin.Support) -> bool:
    agree = one.signature().values == other.signature().values
    return bool(agree.reshape(BANDING.bands, BANDING.rows).all(axis=1).any())


def _tiles(values: Floats) -> Floats:
    """Ten images of 8 x 8 as one of 5 columns, with a line between."""
    tiles = np.full((2 * 9 - 1, 5 * 9 - 1), math.nan)
    for at in range(10):
        row, column = divmod(at, 5)
        image = values[at * 64 : at * 64 + 64].reshape(8, 8)
        tiles[row * 9 : row * 9 + 8, column * 9 : column * 9 + 8] = image
    return tiles
