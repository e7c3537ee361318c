"""What the words of the pages mean, and each verdict."""

from __future__ import annotations

from typing import Final

__all__ = ["VERDICTS", "WORDS"]

WORDS: Final = {
    "Support": "The positions of the parameters of a model that matter most. It holds no weight.",
    "Similarity (S)": (
        "How much two supports overlap, from 0 to 1. Models made from the same weights overlap, "
        "and strangers overlap as much as chance gives."
    ),
    "Chance": (
        "The overlap of two supports that share nothing, by how many positions each holds in each "
        "tensor. Bars show it as a thin line."
    ),
    "Kappa": (
        "The similarity beyond chance: 0 is chance, and 1 is equal. Where supports are of weights, "
        "0.3 and more is kin, and less than 0.1 is chance."
    ),
    "P": (
        "How likely unrelated models are to be as similar. 10^-20 has twenty zeros: no accident."
    ),
    "Space": "A collection of models whose positions mean the same: mostly one architecture.",
    "Line": "A row or a column of a matrix of weights.",
    "Fingerprint": (
        "Hashes of a sample of the lines of a model. By these, models of any architecture are "
        "compared, and no line can be read from its hash."
    ),
    "Anatomy": "Which models the tensors of a model come from, by the lines in common.",
    "Donor": "A model from which another one may learn, with its share of the mix.",
    "Clustering": "Groups of models that are nearer to each other than to the rest.",
}
"""Each word, and what it means in a sentence or two."""

VERDICTS: Final = {
    "consistent": "The declared base and the model share far more than chance gives.",
    "mismatch": "They share what chance gives, or another model is nearer and lies between them.",
    "cycle": "The declared bases lead back to the model: one of them is wrong.",
    "undeclared": "The model declares no base, and another model stands out near it.",
    "unknown base": "The declared base is not stored here, or cannot be compared.",
    "inconclusive": "What is measured decides neither way, and the reason says why.",
}
"""The verdicts on a declared base, what asks for a look first behind what is well."""
