"""LoRA adapters in torch: the supports of models and state dicts are those of the saved files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import modelkin
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.core.importance import origin_of
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from modelkin.torch import adapter_importance, select_adapter_support
from tests.sdk.adapters.folders import CONFIG, adapter_folder, factors, random_factors

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def tensors_of(
    seed: int, dtype: torch.dtype = torch.float32, adapter: str = ""
) -> dict[str, Tensor]:
    """The factors of a random adapter, as PEFT's state dicts have them."""
    arrays = factors(random_factors(seed), adapter)
    return {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}


class Settings:
    """A configuration as PEFT keeps it in memory."""

    def __init__(self, **fields: Any) -> None:
        self.fields = {**CONFIG, "target_modules": {"q_proj", "v_proj", "down"}, **fields}

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return self.fields


class Adapted(nn.Module):
    """A model with two adapters, whose state dict has the names that PEFT's models have."""

    def __init__(self) -> None:
        super().__init__()
        self.peft_config = {"default": Settings(), "other": Settings(lora_alpha=2)}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The factors of both beside the weights of the base."""
        base = {"base_model.model.layers.0.q_proj.base_layer.weight": torch.ones(24, 16)}
        return {**base, **tensors_of(0, adapter="default"), **tensors_of(1, adapter="other")}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_state_dict_has_the_support_of_its_file(tmp_path: Path, dtype: torch.dtype) -> None:
    """To the bit, in every precision, with the importance whole and by blocks."""
    tensors = tensors_of(0, dtype)
    folder = adapter_folder(tmp_path / "a", {})
    save_file(tensors, folder / "adapter_model.safetensors")
    adapter = open_checkpoint(folder)
    rule = SelectionRule.of(adapter.num_parameters, fraction=0.1)
    expected = select_from_checkpoint(adapter, rule=rule)
    importance = adapter_importance(tensors, CONFIG)
    assert expected.digest == modelkin.select_support(importance, fraction=0.1).digest
    assert expected.digest == select_adapter_support(tensors, CONFIG).digest
    origin = origin_of(importance)
    assert origin is not None
    assert adapter.layout == origin.layout
    assert origin == select_adapter_support(tensors, CONFIG).origin


def test_a_model_has_its_own_configuration() -> None:
    """Of several adapters the named one counts, and the base's weights do not."""
    model = Adapted()
    assert torch.equal(adapter_importance(tensors_of(0), CONFIG), adapter_importance(model))
    other = adapter_importance(model, adapter="other")
    assert torch.equal(adapter_importance(tensors_of(1), {**CONFIG, "lora_alpha": 2}), other)
    with pytest.raises(InvalidParameter, match="no configuration of an adapter 'third': give"):
        adapter_importance(model, adapter="third")


def test_other_things_than_adapters_are_refused() -> None:
    """A model without factors, tensors of integers, other values."""
    with pytest.raises(InvalidCheckpoint, match="of this Linear: it holds no factors"):
        adapter_importance(nn.Linear(2, 2), CONFIG)
    with pytest.raises(InvalidParameter, match=r"torch.int8: gather or dequantise"):
        adapter_importance(tensors_of(0, torch.int8), CONFIG)
    with pytest.raises(InvalidParameter, match="not a list"):
        adapter_importance([], CONFIG)  # type: ignore[arg-type]
    with pytest.raises(InvalidCheckpoint, match="not an object of fields but a list"):
        adapter_importance(tensors_of(0), [])
    dora = {"base_model.model.mlp.down.lora_magnitude_vector": torch.ones(16)}
    with pytest.raises(InvalidCheckpoint, match="it is of DoRA"):
        adapter_importance({**tensors_of(0), **dora}, CONFIG)
