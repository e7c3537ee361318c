"""The layout of a torch model is its parameters in order; a missing torch is an error."""

from __future__ import annotations

import subprocess
import sys

import pytest
from torch import nn

from modelkin.errors import InvalidLayout
from modelkin.torch import layout_of


def test_names_and_shapes_stand_in_the_models_order() -> None:
    """A layout lists the parameters as named_parameters() does, without the buffers."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    expected = [("0.weight", (2, 3)), ("0.bias", (2,)), ("1.weight", (2,)), ("1.bias", (2,))]
    assert expected == [(spec.name, spec.shape) for spec in layout_of(model).tensors]


def test_freezing_does_not_change_the_layout() -> None:
    """Frozen parameters keep their place, so that an index means the same before and after."""
    model = nn.Linear(3, 2)
    before = layout_of(model)
    assert before == layout_of(model.requires_grad_(False).eval())


def test_tied_parameters_stand_in_it_once() -> None:
    """A weight that two modules share counts once, under its first name."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert ["0.weight"] == [spec.name for spec in layout_of(model).tensors]


def test_a_model_without_parameters_has_no_layout() -> None:
    """An empty layout is an error that names the model."""
    with pytest.raises(InvalidLayout, match="this ReLU has no parameters"):
        layout_of(nn.ReLU())


def test_lazy_parameters_need_a_first_batch() -> None:
    """For a parameter without a shape, the error names it and says what gives it one."""
    with pytest.raises(InvalidLayout, match="'weight' has no shape yet: run one batch"):
        layout_of(nn.LazyLinear(3))


def test_without_torch_the_import_says_what_to_install() -> None:
    """Where torch is missing, the import is a MissingExtra with the command that brings it."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from modelkin.errors import MissingExtra\n"
        "try:\n    from modelkin.torch import fisher_importance\n"
        "except MissingExtra as error:\n    print(error)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (
        "this needs torch, which is not installed: pip install 'modelkin[torch]'\n" == answer.stdout
    )
