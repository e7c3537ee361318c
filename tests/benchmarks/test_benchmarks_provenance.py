"""Who finds kin: pairs are what they are said to be, and answers are counted as they fall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.provenance.architectures import MADE, Architecture
from benchmarks.provenance.pairs import Pair, models_of, strangers_of
from benchmarks.provenance.planted import planted_pairs
from benchmarks.provenance.scores import best_threshold, by_kind, decided, score_of
from benchmarks.provenance.stored import Model, loaded, save
from benchmarks.provenance.surgery import (
    experts,
    franken,
    fused,
    permuted_stream,
    permuted_units,
    renamed,
    rotated,
    with_layers,
)
from benchmarks.provenance.tools import MATRICES, MODELKIN, Cosine, Fingerprints

LLAMA, BERT, GPT2, NEOX = MADE
A, B, C = Path("a"), Path("b"), Path("c")
PAIRS = [
    Pair("copy", A, B, are_kin=True),
    Pair("copy", B, A, are_kin=True),
    Pair("part", A, C, are_kin=True),
    Pair("strangers", B, C, are_kin=False),
    Pair("strangers", C, B, are_kin=False),
]


def test_fingerprints_tell_planted_kin_from_strangers(tmp_path: Path) -> None:
    """All derivatives are found and no stranger; a cosine has no answer to other names."""
    pairs = planted_pairs(tmp_path)
    truth = [pair.are_kin for pair in pairs]
    ours, cosine = Fingerprints().answers(pairs), Cosine().answers(pairs)
    assert truth == ours.verdicts[MODELKIN]
    assert "renamed" == pairs[0].kind
    assert cosine.values[MATRICES][0] is None
    assert len(models_of(pairs)) == len(ours.costs.kept)
    assert {} == ours.costs.unread


def test_a_model_that_cannot_be_read_has_no_answer(tmp_path: Path) -> None:
    """Its folder is named with the reason, and its pairs are neither kin nor strangers."""
    kin = planted_pairs(tmp_path / "models")[0]
    (tmp_path / "model.onnx").write_bytes(b"of another format")
    answers = Fingerprints().answers([kin, Pair("ONNX", tmp_path, kin.second, are_kin=True)])
    assert [True, None] == answers.verdicts[MODELKIN]
    assert [tmp_path] == list(answers.costs.unread)


def test_a_pair_without_an_answer_is_wrong_and_not_called_kin() -> None:
    """It costs recall where it is of kin, accuracy everywhere, and precision nowhere."""
    score = score_of(PAIRS, [True, None, False, True, None])
    assert (1, 1, 2, 1) == (score.found, score.false, score.unanswered, score.right)
    assert (0.2, 0.5) == (score.accuracy, score.precision)
    assert pytest.approx(1 / 3) == score.recall
    assert pytest.approx(2 * 0.5 / 3 / (0.5 + 1 / 3)) == score.f1


def test_answers_are_counted_by_kind() -> None:
    """Each kind has the right answers of its own pairs."""
    scores = by_kind(PAIRS, [True, False, True, False, True])
    assert {"copy": 1, "part": 1, "strangers": 1} == {k: each.right for k, each in scores.items()}


def test_the_best_threshold_is_that_of_the_greatest_f1() -> None:
    """A stranger beyond some kin is called kin where that finds more of them."""
    values = [0.9, 0.8, 0.3, 0.4, 0.1]
    threshold = best_threshold(PAIRS, values)
    assert [True, True, True, True, False] == decided(values, threshold)
    assert [None, True] == decided([None, 0.2], threshold)


def test_every_pair_of_trainings_is_one_of_strangers() -> None:
    """Within a configuration all pairs, between two of them one."""
    found = strangers_of([[A, B, C], [Path("d")]], [(A, C)])
    assert [(A, B), (A, C), (B, C), (A, C), (A, Path("d"))] == [
        (pair.first, pair.second) for pair in found
    ]
    assert not any(pair.are_kin for pair in found)


def small(architecture: Architecture, folder: Path) -> Model:
    """A model of transformers with its first values, biases and gains among them."""
    import torch

    from benchmarks.provenance.training import stored_class, transformers

    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(
        architecture.kind, vocab_size=99, **architecture.settings
    )
    made = stored_class(config).from_config(config)
    for weights in made.parameters():
        if weights.dim() == 1:
            weights.data += 0.1 * torch.randn_like(weights)
    made.save_pretrained(folder)
    return loaded(folder)


def logits(model: Model, folder: Path) -> Any:
    """What a model computes of some tokens."""
    import torch

    from benchmarks.provenance.training import stored_class, transformers

    save(model, folder)
    made = (
        stored_class(transformers.AutoConfig.from_pretrained(folder)).from_pretrained(folder).eval()
    )
    with torch.no_grad():
        return made(input_ids=torch.arange(24).reshape(2, 12)).logits.numpy()


def all_values(model: Model) -> npt.NDArray[np.float32]:
    """The values of all tensors, sorted."""
    return np.sort(np.concatenate([values.ravel() for values in model.tensors.values()]))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MADE, ids=lambda each: each.kind)
def test_a_permuted_model_computes_the_same(architecture: Architecture, tmp_path: Path) -> None:
    """So no axis is permuted that should not be, and none is forgotten."""
    model = small(architecture, tmp_path / "base")
    expected = logits(model, tmp_path / "copy")
    for change in (permuted_units, permuted_stream, *([rotated] if architecture is LLAMA else [])):
        changed = change(model, architecture)
        assert any(
            not np.array_equal(changed.tensors[name], values)
            for name, values in model.tensors.items()
        )
        found = logits(changed, tmp_path / change.__name__)
        assert np.allclose(expected, found, atol=1e-4), change.__name__


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MADE, ids=lambda each: each.kind)
def test_surgery_keeps_the_parts(architecture: Architecture, tmp_path: Path) -> None:
    """Fused, renamed and mixed models have all values of their originals, under other names."""
    model = small(architecture, tmp_path / "base")
    values = all_values(model)
    for changed in (fused(model, architecture), renamed(model, architecture)):
        assert np.array_equal(values, all_values(changed))
        assert changed.tensors.keys() - model.tensors.keys()
    mixed = all_values(experts(model, [model, model], architecture))
    assert np.isin(values, mixed).all()
    assert mixed.size > values.size
    swapped = with_layers((1, 0, 2, 3))(model, architecture)
    back = with_layers((1, 0, 2, 3))(swapped, architecture)
    halves = franken(model, swapped, architecture)  # whose upper layers are those of the model
    for same in (back, halves):
        assert all(np.array_equal(same.tensors[k], model.tensors[k]) for k in model.tensors)
    name = architecture.layer.format(0) + next(iter(architecture.units))
    assert not np.array_equal(swapped.tensors[name], model.tensors[name])
