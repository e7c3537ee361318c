"""Tables 3, 4, 5 and 9: neighbours, donors, their labels, and the size of a support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin import Support, select_support
from modelkin.core.estimators import jaccard_of, standard_error
from studies import baselines
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub, HubSpace
from studies.measures import Oracle, Order, others, ranking
from studies.settings import DIRICHLET, FILES, PATHOLOGICAL, TUNING_SEEDS, Setting, grid

__all__ = ["EPOCHS", "NAME", "SIZES", "figures", "ios", "settings", "supports_of"]

NAME: Final = "retrieval"
EPOCHS: Final = 8
SIZES: Final = ("1%", "5%", "10%", "K*", "15%", "25%")
"""K as a share of M; K* is the clients' median for a coverage of 0.8."""

_COVERAGE: Final = 0.8
_RANKS: Final = (4, 5, 8, 16)
_DONORS: Final = 8


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """All splits of one network, each with all seeds; and those that baselines are tuned on.

    Data that come as files have no tuned baseline: their cells take a minute each.
    """
    yield from grid(seeds, data, network, (*DIRICHLET, *PATHOLOGICAL))
    if data not in FILES:
        yield from grid(TUNING_SEEDS, data, network)


def ios(procedure: str, size: str = "10%") -> str:
    """The name of a row of index overlaps."""
    return f"{procedure}: IOS, K = {size}"


def figures(setting: Setting, hub: Hub) -> Figures:
    """Recall, rank correlation and alignment of index overlaps, and of all that stands beside."""
    federation = Federation.of(setting)
    oracle = Oracle(federation.mixes)
    training = federation.trained(EPOCHS)
    found: Figures = {"chance": {f"tied R@{k}": oracle.chance(k) for k in _RANKS}}
    for procedure, values in (("A", federation.importances), ("B", training.moments)):
        found.update(_overlaps(federation, procedure, values, oracle, hub))
        for name, similarity in baselines.of_importance(values).items():
            found[f"{procedure}: {name}"] = _judged(oracle, ranking(similarity), similarity)
    for name, similarity in baselines.of_training(federation, training).items():
        found[f"B: {name}"] = _judged(oracle, ranking(similarity), similarity)
    truth = baselines.oracle(oracle.mixes)
    found[baselines.HISTOGRAMS] = _judged(oracle, ranking(truth), truth)
    return found


def supports_of(
    federation: Federation, importances: npt.ArrayLike, size: str, *, ordered: bool = False
) -> dict[str, Support]:
    """The support of each client by its name, all of one K; ordered ones for ordered spaces."""
    rows = np.asarray(importances, np.float32)
    if size == "K*":
        chosen = [select_support(row, coverage=_COVERAGE).k for row in rows]
        k = int(np.median(chosen))
    else:
        k = round(float(size.rstrip("%")) / 100 * rows.shape[1])
    return {
        name: select_support(row, k=k, ordered=ordered)
        for name, row in zip(federation.names, rows, strict=True)
    }


def _overlaps(
    federation: Federation, procedure: str, importances: npt.ArrayLike, oracle: Oracle, hub: Hub
) -> Iterator[tuple[str, dict[str, float]]]:
    m = np.shape(importances)[1]
    for number, size in enumerate(SIZES):
        supports = supports_of(federation, importances, size)
        name = f"{federation.setting.name}-{procedure.lower()}-{number}"
        with hub.space(name, supports, m) as space:
            exact = space.matrix()
            judged = _judged(oracle, space.order(), exact)
            shares = {"K/M": next(iter(supports.values())).k / m, "mean S": others(exact).mean()}
            yield ios(procedure, size), judged | shares
            if size == "10%":
                yield f"{procedure}: donors", _donors(oracle, space)
        if size == "10%":
            signatures = {client: support.signature() for client, support in supports.items()}
            with hub.space(f"{name}-signatures", signatures, m) as space:
                yield f"{procedure}: signatures", _estimated(oracle, space, exact)


def _judged(oracle: Oracle, order: Order, similarity: Floats) -> dict[str, float]:
    found = {f"R@{k}": oracle.recall(order, k) for k in _RANKS}
    found |= {f"tied R@{k}": oracle.tied_recall(order, k) for k in _RANKS}
    weights = _weights(order[:, :_DONORS], similarity)
    return found | {"tau": oracle.tau(similarity), "alignment": oracle.alignment(weights)}


def _weights(near: Order, similarity: Floats) -> Floats:
    """The paper's: in proportion to a similarity, or to 1 / (1 + d) of a distance d."""
    mixed = np.zeros_like(similarity)
    for row, positions in enumerate(near):
        chosen = positions + (positions >= row)
        values = similarity[row, chosen]
        negative = (similarity <= 0).all()  # minus a distance
        mixed[row, chosen] = 1 / (1 - values) if negative else np.maximum(values, 0)
    return mixed


def _donors(oracle: Oracle, space: HubSpace) -> dict[str, float]:
    """How far the labels of a client's donors are from its own, by each way to weigh them."""
    return {
        "weights by S": oracle.alignment(space.donors("similarity", "similarity", _DONORS)),
        "weights by z-score": oracle.alignment(space.donors("similarity", "zscore", _DONORS)),
        "cover": oracle.alignment(space.donors("cover", "score", _DONORS)),
    }


def _estimated(oracle: Oracle, space: HubSpace, exact: Floats) -> dict[str, float]:
    """The cost of signatures alone: recall, and the error of S beside that of theory."""
    estimates = space.matrix()
    expected = [standard_error(jaccard_of(s), 256) ** 2 for s in others(exact).ravel()]
    return {
        "R@8": oracle.recall(ranking(estimates), 8),
        "RMSE": float(np.sqrt(((others(estimates) - others(exact)) ** 2).mean())),
        "expected RMSE": float(np.sqrt(np.mean(expected))),
    }
