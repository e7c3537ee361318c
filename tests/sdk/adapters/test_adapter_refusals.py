"""All but LoRA adapters of plain differences are refused, with field, value and remedy."""

from __future__ import annotations

import json
import math
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from modelkin.checkpoints import CheckpointLimits, open_checkpoint, select_from_checkpoint
from modelkin.core.adapters import AdapterConfig
from modelkin.core.adapters.patterns import ModulePattern
from modelkin.errors import InvalidCheckpoint, InvalidImportance
from tests.sdk.adapters.folders import CONFIG, adapter_folder, factors, random_factors

Q = "base_model.model.layers.0.q_proj"


def refusal(folder: Path) -> str:
    """Why an adapter is not opened, in one line."""
    with pytest.raises(InvalidCheckpoint) as caught:
        open_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ONLY = "only adapters of type LORA, LOHA, LOKR can be compared"
OTHERS = (
    *("IA3", "VERA", "ADALORA", "OFT", "BOFT", "HRA", "FOURIERFT", "RANDLORA", "LN_TUNING"),
    "TRAINABLE_TOKENS",
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"peft_type": kind}, f"'{kind}': {ONLY}: merge it into its base") for kind in OTHERS),
        ({"peft_type": "PREFIX_TUNING"}, f"{ONLY}: this one changes no weight of its base"),
        ({"enable_lora": [True, False]}, "enable_lora is [True, False]: this field is not known"),
        ({"trainable_token_indices": [1]}, "rows of an embedding are trained beside the factors"),
        ({"peft_type": None}, "peft_type is missing"),
        ({"r": 0}, "r is 0: a rank is a whole number from 1"),
        ({"r": -4}, "r is -4: a rank"),
        ({"r": None}, "r is missing: a rank"),
        ({"r": True}, "r is True: a rank"),
        ({"r": 8}, "rank 4, its configuration says 8 (r or rank_pattern): give the configuration"),
        ({"rank_pattern": {"down": 0}}, "rank_pattern['down'] is 0: a rank"),
        ({"rank_pattern": {"down": 2}}, "of 'mlp.down' have the rank 4, its configuration says 2"),
        ({"rank_pattern": ["down"]}, "rank_pattern is ['down']: it is an object"),
        ({"rank_pattern": {"(a+)+b": 2}}, "rank_pattern['(a+)+b'] is 2: '(' at character 1 is not"),
        ({"alpha_pattern": {"[z-a]": 2}}, "alpha_pattern['[z-a]'] is 2: bad character range z-a"),
        ({"alpha_pattern": {"down": "8"}}, "alpha_pattern['down'] is '8': an alpha is a number"),
        ({"lora_alpha": 0}, "lora_alpha is 0: an alpha is a number other than 0"),
        ({"lora_alpha": math.nan}, "lora_alpha is 'NaN': an alpha"),
        ({"target_modules": ["\ud800"]}, "is half a surrogate pair, and no text"),
        ({"target_modules": ["a\0"]}, "target_modules is ['a\\x00']: it is a list of names"),
        ({"base_model_name_or_path": "a\udfff"}, "is half a surrogate pair, and no text"),
        ({"base_model_name_or_path": "a\u202e"}, "base_model_name_or_path is 'a\\u202e'"),
        ({"rank_pattern": {"\ud800": 2}}, "is half a surrogate pair, and no text"),
        ({"modules_to_save": ["\ud83d"]}, "is half a surrogate pair, and no text"),
        ({"\ud800": 1}, "is half a surrogate pair, and no text"),
        ({"lora_alpha": 10**400}, "an alpha is a number other than 0"),
        ({"use_dora": True}, "use_dora is True: DoRA rescales the rows of the sum: merge it"),
        ({"modules_to_save": ["head"]}, "modules_to_save is ['head']: these modules are trained"),
        ({"bias": "all"}, "bias is 'all': biases are trained beside the factors: merge it"),
        ({"lora_bias": True}, "lora_bias is True: the factors have biases: merge it"),
        (
            {"init_lora_weights": "pissa_niter_4"},
            "init_lora_weights is 'pissa_niter_4': the base's",
        ),
        ({"layer_replication": [[0, 4]]}, "layer_replication is [[0, 4]]: layers of the base"),
        ({"kasa_config": {"beta": 1}}, "kasa_config is {'beta': 1}: this field is not known here"),
        ({"use_bdlora": True}, "use_bdlora is True: this field is not known here"),
        ({"a\nb": 1}, "'a\\nb' is 1: this field is not known here"),
        ({"x" * 1000: 1}, "... is 1: this field is not known here"),
        ({"weird": 1}, "weird is 1: this field is not known here, and may make it more than its"),
        ({"use_rslora": "yes"}, "use_rslora is 'yes': it is true or false"),
        ({"target_modules": ["q_proj"]}, "target_modules ['q_proj'] do not name "),
        ({"of_next_year": math.nan}, "of_next_year is 'NaN': this field is not known"),
        ({"target_modules": [1]}, "target_modules is [1]: it is a list of names"),
        ({"base_model_name_or_path": "a\nb"}, "base_model_name_or_path is 'a\\nb': it is a name"),
        ({"base_model_name_or_path": 7}, "base_model_name_or_path is 7: it is a name"),
    ],
)
def test_a_configuration_is_refused_by_field_and_value(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    """The message names the field, its value and what to do."""
    folder = adapter_folder(tmp_path / "a", factors(random_factors(0)), **fields)
    assert message in refusal(folder)
    assert refusal(folder).startswith(("adapter_config.json: ", "adapter_model.safetensors: "))


def test_fields_that_leave_the_product_alone_are_taken(tmp_path: Path) -> None:
    """All that PEFT 0.19 writes, set where that may be, and a newer field that is empty."""
    fields = {
        "alora_invocation_tokens": None,
        "arrow_config": None,
        "auto_mapping": {"base_model_class": "LlamaForCausalLM", "parent_library": "peft"},
        "lora_dropout": math.nan,  # as Python writes it
        "corda_config": {"corda_method": "ipm"},
        "ensure_weight_tying": True,
        "eva_config": {"rho": -math.inf},
        "exclude_modules": ["lm_head"],
        "layer_replication": None,
        "layers_pattern": "layers",
        "layers_to_transform": [0],
        "lora_bias": False,
        "lora_ga_config": None,
        "megatron_config": None,
        "megatron_core": "megatron.core",
        "peft_version": "0.19.1",
        "qalora_group_size": 16,
        "revision": "main",
        "target_parameters": None,
        "trainable_token_indices": None,
        "use_bdlora": None,
        "use_qalora": False,
        "of_next_year": [],
    }
    tensors = factors(random_factors(0))
    plain = select_from_checkpoint(open_checkpoint(adapter_folder(tmp_path / "a", tensors)))
    found = open_checkpoint(adapter_folder(tmp_path / "b", tensors, **fields))
    assert plain == select_from_checkpoint(found)


@pytest.mark.parametrize("start", [True, False, None, "gaussian", "EVA", "orthogonal"])
def test_starts_that_leave_the_base_alone_are_taken(tmp_path: Path, start: object) -> None:
    """Only ways to begin that change the base's weights make factors of another difference."""
    tensors = factors(random_factors(0))
    assert open_checkpoint(adapter_folder(tmp_path / "a", tensors, init_lora_weights=start))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{Q}.lora_B.weight": None}, "'layers.0.q_proj' has no lora_B: the file is incomplete"),
        ({f"{Q}.lora_A.weight": np.ones((3, 16), "f4")}, "A has the rank 3 and B 4; save the"),
        ({f"{Q}.lora_A.weight": np.ones((0, 16), "f4")}, "shape [0, 16]: gather them before they"),
        (
            {f"{Q}.lora_B.weight": np.ones(0, "f4")},
            "shape [0]: gather them before they are",
        ),
        (
            {f"{Q}.lora_A.weight": np.ones((4, 0), "f4")},
            "the factors of 'layers.0.q_proj' are empty",
        ),
        ({f"{Q}.lora_A.weight": np.ones((4, 16, 3, 3), "f4")}, "[24, 4] of 'layers.0.q_proj' do"),
        ({f"{Q}.lora_A.weight": np.ones(64, "f4")}, "lora_A [64] and lora_B [24, 4] of 'layers.0."),
        (
            {f"{Q}.alpha": np.ones((), "f4")},
            "alpha beside it, and adapter_config.json says another",
        ),
        ({f"{Q}.hada_w1_a": np.ones((4, 4), "f4")}, "'layers.0.q_proj' has factors of two"),
        (
            {"base_model.model.other.alpha": np.ones((), "f4")},
            "'other' has an alpha and no factors",
        ),
        (
            {f"{Q}.lora_A.weight": np.ones((4, 16), "i1")},
            "q_proj.lora_A.weight' is I8: factors are",
        ),
        ({f"{Q}.base_layer.weight": np.ones((24, 16), "f4")}, "is not a factor lora_A or lora_B"),
        ({f"{Q}.lora_magnitude_vector": np.ones(24, "f4")}, "it is of DoRA (use_dora)"),
        ({f"{Q}.lora_B.bias": np.ones(24, "f4")}, "the factors have biases (lora_bias)"),
        (
            {"base_model.model.score.weight": np.ones((2, 2), "f4")},
            "is not a factor lora_A or lora_B",
        ),
        ({f"{Q}.lora_A.other.weight": np.ones((4, 16), "f4")}, "it holds several adapters, "),
        ({"layers.0.q_proj.lora_A.weight": np.ones((4, 16), "f4")}, "has two factors A: save"),
        ({f"{Q}.lora_embedding_A": np.ones((4, 16), "f4")}, "has two factors A: save"),
    ],
)
def test_tensors_are_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """The message names the module, what is wrong with it and what to do."""
    tensors = {**factors(random_factors(0)), **change}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    assert message in refusal(adapter_folder(tmp_path / "a", kept))


def test_an_adapter_needs_its_configuration(tmp_path: Path) -> None:
    """Factors alone are not a checkpoint, whatever the file's name: |A| and |B| compare nothing."""
    for name in ("adapter_model.safetensors", "model.safetensors"):
        path = tmp_path / name
        save_file(factors(random_factors(0)), path)
        assert "and no adapter_config.json lies beside it: put there what PEFT" in refusal(path)


def test_an_adapter_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A file by the name of adapters is read as one, even if no tensor in it is a factor."""
    prompts = {"prompt_embeddings": np.ones((4, 16), "f4")}
    assert "peft_type is 'PROMPT_TUNING'" in refusal(
        adapter_folder(tmp_path / "a", prompts, peft_type="PROMPT_TUNING")
    )
    assert "'prompt_embeddings' is not a factor" in refusal(adapter_folder(tmp_path / "b", prompts))


def test_an_adapter_that_was_not_trained_has_no_support(tmp_path: Path) -> None:
    """B begins as zeros, and without a difference there is no importance."""
    pairs = {module: (a, 0 * b) for module, (a, b) in random_factors(0).items()}
    with pytest.raises(InvalidImportance, match="entries of the importance are zero"):
        select_from_checkpoint(open_checkpoint(adapter_folder(tmp_path / "a", factors(pairs))))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_differences_are_finite(tmp_path: Path, value: float) -> None:
    """A factor that is NaN or infinite, or a product beyond float32, is named."""
    tensors = factors(random_factors(0))
    tensors[f"{Q}.lora_A.weight"][0, 0] = value
    folder = adapter_folder(tmp_path / "a", tensors)
    with pytest.raises(InvalidCheckpoint, match=r"'layers.0.q_proj.weight' give a difference that"):
        select_from_checkpoint(open_checkpoint(folder))


def test_a_factor_too_large_to_keep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One factor stays in memory while the other is read, so its size has a limit."""
    monkeypatch.setattr("modelkin.core.adapters.factors.MAX_KEPT", 100)
    folder = adapter_folder(tmp_path / "a", factors(random_factors(0)))
    assert "of rank 4 over 40 columns, are beyond the 100 entries" in refusal(folder)


def test_an_adapter_obeys_the_limits_on_headers(tmp_path: Path) -> None:
    """A strange adapter declares no more tensors than any other file."""
    folder = adapter_folder(tmp_path / "a", factors(random_factors(0)))
    limits = CheckpointLimits(header=10_000, tensors=5, name=100, dimensions=4)
    with pytest.raises(InvalidCheckpoint, match="it holds 6 tensors, at most 5"):
        open_checkpoint(folder, limits=limits)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b" " * (1 << 21)])
def test_a_configuration_other_than_a_json_object_is_refused(data: bytes) -> None:
    """Whatever lies in its place, the error is one and names the file."""
    with pytest.raises(InvalidCheckpoint, match=r"^adapter_config\.json: it "):
        AdapterConfig.from_json(data)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(fields=st.dictionaries(st.sampled_from(sorted(CONFIG)), ANY_JSON, max_size=6))
def test_no_configuration_raises_another_error(fields: dict[str, Any]) -> None:
    """Fuzzed fields, as JSON and as an object, are taken or refused."""
    for form in ("object", "JSON"):
        with suppress(InvalidCheckpoint):
            given = {**CONFIG, **fields}
            config = (
                AdapterConfig.of(given)
                if form == "object"
                else AdapterConfig.from_json(json.dumps(given))
            )
            config.require_patterns_for(["layers.0.q_proj"])
            assert np.isfinite(config.scale_of("layers.0.q_proj"))


MODULES = st.text(alphabet="ab1.", min_size=1, max_size=12)
PATTERNS = st.text(alphabet="ab1.*+?^$()|[]-\\dw", min_size=1, max_size=12)


@settings(max_examples=200)
@given(text=PATTERNS, module=MODULES)
def test_a_pattern_means_what_it_means_to_peft(text: str, module: str) -> None:
    """What is taken matches as PEFT's own expression, a name or its end after a dot."""
    try:
        pattern = ModulePattern.of(text)
    except ValueError:
        return
    assert pattern.matches(module) == bool(re.match(rf"(.*\.)?({text})$", module))


@pytest.mark.parametrize(
    "text",
    ["q_proj", r"^model\.layers\.\d+\.mlp", ".*(q|v)_proj$", "layers.[0-9]+.attn", "(?:a|b).c"],
)
def test_usual_patterns_are_taken(text: str) -> None:
    """Names, numbers of layers and alternatives are what configurations are written with."""
    assert ModulePattern.of(text)


def test_patterns_that_would_take_a_lifetime_are_refused_at_once(tmp_path: Path) -> None:
    """Every character may repeat, and nothing fits: an ordinary matcher would not end."""
    folder = adapter_folder(
        tmp_path / "a",
        factors(random_factors(0, {"a" * 200: (3, 3)})),
        target_modules="all-linear",
        alpha_pattern={"a*" * 100 + "b": 2},
    )
    begin = time.monotonic()
    assert "would take too long to try on all modules: write the names" in refusal(folder)
    assert time.monotonic() - begin < 5
