"""Draws the pictures of docs/sdk.md, one of each plot, and those of docs/concepts.md.

python -m docs.plots    writes docs/images/plot-*.png and docs/images/concept-*.png
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import modelkin
from docs import concept_pictures
from modelkin import plots
from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.core.fingerprints.anatomy import anatomy as anatomy_of
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker
from modelkin.core.similarity import overlap
from modelkin.types import (
    Graph,
    GraphEdge,
    GraphNode,
    Kin,
    Lineage,
    Neighbor,
    Neighbors,
    Overlap,
    Revision,
    Revisions,
    SimilarityBaseline,
    SimilarityMatrix,
)

IMAGES = Path(__file__).parent / "images"
GROUPS = ("chest", "hand", "skull")
PER_GROUP = 6
K = 1500
LAYOUT = modelkin.Layout.of(
    [
        (f"block{at}.{part}", shape)
        for at in range(6)
        for part, shape in (("attention", (40, 40)), ("mlp", (50, 40)), ("norm", (40,)))
    ]
)
LAYERS = 6
WIDTH = 64
KINDS = ("attention.q", "attention.k", "attention.v", "attention.o", "mlp.up", "mlp.down")
START = datetime(2026, 5, 4, tzinfo=UTC)


def importance(group: int, seed: int, spread: float = 0.6) -> npt.NDArray[np.float32]:
    """An importance that its group has in common, more so in early tensors."""
    size = LAYOUT.num_parameters
    common = np.random.default_rng(1).lognormal(sigma=1.5, size=size)
    own = np.random.default_rng(100 + group).lognormal(sigma=1.2, size=size)
    noise = np.random.default_rng(1000 + seed).lognormal(sigma=spread, size=size)
    depth = np.linspace(0.1, 1.2, size)
    return np.asarray(common * own**depth * noise, np.float32)


def models() -> dict[str, modelkin.Support]:
    """Three groups of models."""
    return {
        f"{name}/ward-{at}": modelkin.select_support(
            importance(group, PER_GROUP * group + at), k=K, kind="fisher"
        )
        for group, name in enumerate(GROUPS)
        for at in range(PER_GROUP)
    }


def overlap_of(name: str, other: str, supports: dict[str, modelkin.Support]) -> Overlap:
    """Two models compared by tensor."""
    a, b = supports[name], supports[other]
    tensors = overlap.by_tensor(a, b, LAYOUT)
    return Overlap(
        name,
        other,
        overlap.shared_count(a, b),
        overlap.similarity(a, b),
        overlap.jaccard(a, b),
        tensors,
    )


def answers() -> dict[str, Any]:
    """What the plots are given, by their names."""
    supports = models()
    names = list(supports)
    compared = {
        (a, b): overlap.similarity(supports[a], supports[b]) for a, b in combinations(names, 2)
    }
    similar = {**compared, **{(b, a): s for (a, b), s in compared.items()}}
    values = np.array([[similar.get((a, b), 1.0) for b in names] for a in names])
    mixed = np.random.default_rng(4).permutation(len(names))
    first = names[0]
    ranked = sorted(names[1:], key=lambda name: -similar[first, name])
    found = [
        Neighbor(name, share, share / (2 - share), "signature", 0.03, expected=0.09)
        for name in ranked[:10]
        for share in [similar[first, name]]
    ]
    edges = {
        (min(a, b), max(a, b))
        for a in names
        for b in sorted(names, key=lambda name: -similar.get((a, name), 0))[:4]
    }
    matrix = SimilarityMatrix(tuple(names[at] for at in mixed), values[np.ix_(mixed, mixed)], ())
    return {
        "neighbors": Neighbors(
            items=tuple(found), model=first, method="scan", candidates=17, degraded=False
        ),
        "matrix": matrix,
        "map": Graph(
            nodes=tuple(GraphNode(name, "support", K, ()) for name in names),
            edges=tuple(GraphEdge(a, b, similar[a, b], "exact", 0.0) for a, b in sorted(edges)),
            k=4,
            version=1,
        ),
        "tensor_overlap": overlap_of(names[0], names[6], supports),
        "anatomy": assembled(),
        "drift": drifting(),
        "lineage": descended(first, ranked, similar),
    }


def weights(seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """A small transformer of random weights."""
    draw = np.random.default_rng(seed)
    shapes = {f"layers.{i}.{kind}": (WIDTH, WIDTH) for i in range(LAYERS) for kind in KINDS}
    return {
        name: draw.standard_normal(shape, np.float32)
        for name, shape in {"embed": (300, WIDTH), **shapes}.items()
    }


def assembled() -> Anatomy:
    """A model of twelve layers: ten of one model, two of them trained on, one of another, one own.

    The layers 2 to 5 stand in it twice, as an up-scaling leaves them.
    """
    chat, code, own = weights(0), weights(1), weights(2)
    from_chat = [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
    made = {"embed": chat["embed"]}
    for at, layer in enumerate(from_chat):
        drift = 0.1 if at in (6, 7) else 0.0
        for kind in KINDS:
            name = f"layers.{layer}.{kind}"
            made[f"layers.{at}.{kind}"] = chat[name] + np.float32(drift) * own[name]
    for kind in KINDS:
        made[f"layers.10.{kind}"] = code[f"layers.5.{kind}"]
        made[f"layers.11.{kind}"] = own[f"layers.5.{kind}"]
    parents = {"lab/chat": fingerprint(chat), "lab/code": fingerprint(code)}
    return anatomy_of(fingerprint(made), parents)


def fingerprint(tensors: dict[str, npt.NDArray[np.float32]]) -> Fingerprint:
    """The fingerprint of a model in memory."""
    maker = FingerprintMaker()
    for name, values in tensors.items():
        maker.add(name, values)
    return maker.finish()


def drifting() -> Revisions:
    """A model that is trained on, and moves to another group after its fourth revision."""
    rows: list[Revision] = []
    supports = [
        modelkin.select_support(
            importance(int(at > 3), 7, spread=0.2 + 0.12 * at), k=K, kind="fisher"
        )
        for at in range(7)
    ]
    for at, support in enumerate(supports):
        before = None if at == 0 else overlap.similarity(supports[at - 1], support)
        rows.append(
            Revision(
                revision=at + 1,
                kind="support",
                support_size=K,
                created_at=START + timedelta(days=at),
                kept=True,
                similarity_previous=before,
                self_overlap_previous=before,
                similarity_first=overlap.similarity(supports[0], support),
                self_overlap_first=overlap.jaccard(supports[0], support),
                estimate_first="exact",
                standard_error_first=0.0,
            )
        )
    return Revisions(tuple(reversed(rows)), "chest/ward-7", 1)


def descended(model: str, ranked: list[str], similar: dict[tuple[str, str], float]) -> Lineage:
    """A model that declares a base of another group."""
    declared = ranked[-1]
    kin = [
        Kin(n, similar[model, n], "exact", 0.0, relation="base" if n == declared else None)
        for n in [*ranked[:7], declared]
    ]
    usual = [similar[model, n] for n in ranked[PER_GROUP - 1 :]]
    baseline = SimilarityBaseline(float(np.median(usual)), float(np.std(usual)), len(usual))
    return Lineage(
        model=model,
        verdict="mismatch",
        reason="rival",
        summary="another model is nearer",
        declared_base=declared,
        kin=tuple(kin),
        usual=baseline,
        limit=baseline.similarity + 0.12,
        chain=(),
        cycle=False,
    )


def main() -> None:
    """Writes the pictures."""
    given = answers()
    groups = {name: name.split("/")[0] for name in models()}
    wards = [importance(0, seed, spread=1.0) for seed in range(3)]
    drawn = {
        "neighbors": plots.neighbors(given["neighbors"]),
        "matrix": plots.matrix(given["matrix"]),
        "map": plots.map(given["map"], groups, dark=True),
        "tensor-overlap": plots.tensor_overlap(given["tensor_overlap"]),
        "coverage": plots.coverage(wards[0]),
        "stability": plots.stability(wards),
        "drift": plots.drift(given["drift"]),
        "lineage": plots.lineage(given["lineage"]),
        "anatomy": plots.anatomy(given["anatomy"], name="lab/assembled"),
    }
    IMAGES.mkdir(exist_ok=True)
    for name, axes in drawn.items():
        axes.figure.savefig(IMAGES / f"plot-{name}.png", dpi=80, metadata={"Software": None})
    concept_pictures.draw(IMAGES)


if __name__ == "__main__":
    main()
