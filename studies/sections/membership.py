"""Sections of the pages of evidence on membership over rounds, Figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from studies.cells import Cell
from studies.sections.paragraphs import first, of_split, table
from studies.sections.summaries import mean, seeds, spread
from studies.tables import membership as attacks

__all__ = ["against", "membership"]

_OF_ROUNDS: Final = 16
"""Samples of a client, of which all rounds are shown."""


def membership(cells: Sequence[Cell]) -> Iterator[str]:
    """The attacks by the samples of a client, and by rounds."""
    yield (
        "Was a sample a client's? The area under the ROC curve, of members beside others of the "
        "same classes; 0.5 is chance. In each round a client sends a message, and then trains the "
        "common weights. The message is the mean of its gradients there, that of their squares "
        "(importances), or the 10% of indices where these are largest. The outsider has the "
        "weights of each round. With a shadow model it has none: it trains one on samples of "
        "its own."
    )
    yield (
        "**Cosine, S**: of the message, and of what the candidate alone would send; scores of "
        "rounds are summed. **Unions**: of the indices over rounds. The paper's attack on indices "
        "is the one with a shadow model and unions. **Beside own samples**: 8 of each class, which "
        "the outsider has. The score is the correlation of the message with the candidate's "
        "gradient (its magnitudes, for indices), less what both have in common with the own "
        "samples."
    )
    yield (
        "**Few samples are seen, and rounds add little**, since the data are the same in each. A "
        "shadow model, which lacks the weights, sees as little in gradients as in indices. "
        "Blinded indices show nothing to who has no key."
    )
    yield "![Membership by the samples of a client](../studies/membership.svg)"
    last, own = attacks.ROUNDS[-1], first(cells)
    for split in dict.fromkeys(cell.setting.split for cell in own):
        held = of_split(own, split)
        yield f"### Membership on {split}, {seeds(held)}"
        for number in (attacks.ROUNDS[0], last):
            after = "one round" if number == 1 else f"{number} rounds"
            yield table(
                (f"after {after}", *(f"{count} samples" for count in attacks.SAMPLES)),
                (
                    [attack, *(_seen(held, count, attack, number) for count in attacks.SAMPLES)]
                    for attack in attacks.ATTACKS
                ),
            )
        yield (
            f"By rounds, of {_OF_ROUNDS} samples a client. The accuracy is the paper's measure: "
            "half of the candidates are members, and one threshold is for all clients. It is the "
            f"best one of half of the clients, judged on the others after {last} rounds."
        )
        columns = [*map(str, attacks.ROUNDS), "accuracy"]
        heads = ("1 round", *(f"{each} rounds" for each in attacks.ROUNDS[1:]), "accuracy")
        yield table(
            (f"{_OF_ROUNDS} samples", *heads),
            (
                [each, *(spread(held, attacks.row(_OF_ROUNDS, each), of) for of in columns)]
                for each in attacks.ATTACKS
            ),
        )


def against(one_round: Sequence[Cell], rounds: Sequence[Cell]) -> Iterator[str]:
    """Sentences on membership that indices were said to hide.

    Args:
        one_round: cells of ``disclosure``.
        rounds: cells of ``membership``.
    """
    once, own = first(one_round), first(rounds)
    if once:
        (indices, gradients), stronger = (
            [mean(once, "members", f"{seen}, {how}") for seen in ("indices", "gradients")]
            for how in ("of the same classes", "of the same classes, beside own samples")
        )
        yield (
            "**Indices show as much of membership as gradients do, by the usual scores**: AUC "
            f"{indices:.3f} from a support, {gradients:.3f} from a gradient, in one round beside "
            "samples of the same classes. The paper has them well apart: it takes a shadow model "
            f"for indices alone. The stronger score sees {stronger[0]:.3f} and {stronger[1]:.3f}."
        )
    if own:
        few, many = attacks.SAMPLES[2], attacks.SAMPLES[-1]
        of_indices, of_gradients = (
            [mean(own, attacks.row(count, attack), "1") for count in (few, many)]
            for attack in (attacks.OWN_INDICES, attacks.OWN_GRADIENTS)
        )
        last = attacks.ROUNDS[-1]
        paper = mean(own, attacks.row(few, attacks.PAPER), str(last))
        yield (
            "**Indices do not hide who was there where samples are few** from an outsider who has "
            f"the weights, and samples of its own. Of {few} a client, one support shows its "
            f"members by an AUC of {of_indices[0]:.3f}, and of {many} by {of_indices[1]:.3f}. "
            f"Gradients show {of_gradients[0]:.3f} and {of_gradients[1]:.3f}. The paper's attack, "
            f"unions over {last} rounds and a shadow model, sees {paper:.3f}. These are means over "
            f"{' and '.join(dict.fromkeys(cell.setting.split for cell in own))}."
        )


def _seen(cells: Sequence[Cell], samples: int, attack: str, number: int) -> str:
    return spread(cells, attacks.row(samples, attack), str(number))
