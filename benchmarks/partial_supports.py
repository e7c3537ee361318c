"""What it costs that a model lacks a part: recall of neighbours, and kappa with its base.

    .venv/bin/python -m benchmarks.partial_supports

Families of fine-tunes are planted in one space. Once all of them have each tensor; once half of
them lack the head, and are stored with gaps. Neighbours are sought by scan, as in a large space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import modelkin
from modelkin import Client, Layout, Support

FAMILIES, CHILDREN, NEAREST = 25, 12, 10
BODY = [(f"layers.{i}.weight", (100, 300)) for i in range(8)]


def layout_with(head: int) -> Layout:
    """A network whose head has so many rows of 100."""
    return Layout.of([*BODY, ("head.weight", (head, 100))])


def main() -> None:
    """Print a line for each size of the head."""
    for head in (120, 270, 600):
        layout = layout_with(head)
        share = head * 100 / layout.num_parameters
        whole, lacking = (measure(layout, partial=partial) for partial in (False, True))
        found = np.mean([len(whole[0][name] & lacking[0][name]) / NEAREST for name in whole[0]])
        print(f"| {share:.0%} | {found:.1%} | {whole[1]:.3f} | {lacking[1]:.3f} |")


def measure(layout: Layout, *, partial: bool) -> tuple[dict[str, set[str]], float]:
    """The nearest of each model, and the mean kappa of children without a head with their base."""
    draw, kappas, nearest = np.random.default_rng(5), [], dict[str, set[str]]()
    with Client(":memory:") as client:
        client.ensure_space("s", layout=layout, importance="weight")
        for family in range(FAMILIES):
            base = draw.normal(size=layout.num_parameters)
            for child in range(CHILDREN):
                weights = base + 0.25 * draw.normal(size=base.size) * (child > 0)
                support = selected(weights, layout, lacks=partial and child % 2 == 1)
                client.put_support("s", f"f{family}/{child}", support)
        for family in range(FAMILIES):
            for child in range(1, CHILDREN, 2):
                name = f"f{family}/{child}"
                answer = client.neighbors("s", name, k=NEAREST, method="scan")
                nearest[name] = {item.model for item in answer}
                kappas.append(client.overlap("s", name, f"f{family}/0").kappa or 0.0)
    return nearest, float(np.mean(kappas))


def selected(weights: npt.NDArray[Any], layout: Layout, *, lacks: bool) -> Support:
    """The largest 5%, of a network without its head where it lacks that."""
    magnitudes = np.abs(weights).astype("f4")
    if not lacks:
        return modelkin.select_support(magnitudes, fraction=0.05, layout=layout)
    body = Layout.of(BODY)
    own = magnitudes[: body.num_parameters]
    return modelkin.select_support(own, fraction=0.05, layout=body, order=layout)


if __name__ == "__main__":
    main()
