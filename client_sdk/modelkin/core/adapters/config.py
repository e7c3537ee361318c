"""``AdapterConfig``: the configuration of an adapter, ``adapter_config.json``, checked.

Its fields are PEFT's, of LoRA, LoHa and LoKr. Whatever makes an adapter more than the product of
its factors is refused, by the name of its field: the product alone would be another model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelkin.core.adapters.names import Algorithm
from modelkin.core.adapters.patterns import MAX_STEPS, ModulePattern, steps_of
from modelkin.core.adapters.updates import MAX_SCALE
from modelkin.core.foreign_json import decode_json, has_control_character, with_constants_as_texts
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = ["CONFIG_NAME", "DEFAULT_FRACTION", "MAX_CONFIG_BYTES", "AdapterConfig"]

CONFIG_NAME: Final = "adapter_config.json"
DEFAULT_FRACTION: Final = 0.1
"""K by default, as a share of the parameters that an adapter targets. On adapters of four tasks it
separates the tasks better than the .05 of other differences: docs/hubs.md."""

MAX_CONFIG_BYTES: Final = 1 << 20
_MAX_RANK: Final = 1 << 20
_MAX_NAME_LENGTH: Final = 200
_MERGE: Final = "merge it into its base (merge_and_unload) and give the merged model with its base"
_ALGORITHMS: Final[dict[Any, Algorithm]] = {"LORA": "LoRA", "LOHA": "LoHa", "LOKR": "LoKr"}
"""What is read, by ``peft_type``."""
_PROMPTS: Final = (
    *("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "CPT"),
    *("ADAPTION_PROMPT", "CARTRIDGE"),
)
"""Types whose parameters are read beside the inputs."""
_NO_WEIGHTS: Final = "this one changes no weight of its base, only what that reads"
_FIELDS: Final = {
    "use_dora": f"DoRA rescales the rows of the sum: {_MERGE}",
    "modules_to_save": f"these modules are trained whole, not as factors: {_MERGE}",
    "lora_bias": f"the factors have biases: {_MERGE}",
    "trainable_token_indices": f"rows of an embedding are trained beside the factors: {_MERGE}",
    "target_parameters": f"the factors are of parameters of experts: {_MERGE}",
    "layer_replication": f"layers of the base are repeated: {_MERGE}",
    "alora_invocation_tokens": "it acts on some tokens alone, which no difference of weights shows",
    "use_qalora": f"the factors act on averages of inputs: {_MERGE}",
}
"""Fields that must be empty, and why."""
_STARTS: Final = frozenset({"gaussian", "eva", "orthogonal", "mica"})
"""Ways to begin that leave the weights of the base as they are, beside true and false."""
_READ: Final = frozenset(
    {
        "peft_type",
        "r",
        "lora_alpha",
        "rank_pattern",
        "alpha_pattern",
        "use_rslora",
        "fan_in_fan_out",
        "base_model_name_or_path",
        "target_modules",
        "bias",
        "init_lora_weights",
    }
)
"""Fields that are checked one by one."""
_OF_LYCORIS: Final = frozenset(
    {
        "alpha",  # which is checked, too
        # They matter for the training alone.
        *("rank_dropout", "module_dropout", "rank_dropout_scale", "init_weights"),
        # They choose the shapes of factors, and the file has them.
        *("use_effective_conv2d", "decompose_both", "decompose_factor"),
    }
)
"""Fields that LoHa and LoKr have, and LoRA has not."""
_HARMLESS: Final = frozenset(
    {
        # They matter for the beginning of the training alone, which init_lora_weights names.
        *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),
        # They matter for the training alone.
        *("lora_dropout", "lora_dtype", "lorap_lr_ratio", "lorap_emb_lr"),
        # They choose modules, and the file has the factors of those that were chosen.
        *("exclude_modules", "layers_to_transform", "layers_pattern", "ensure_weight_tying"),
        # They say how the model is loaded and run, or who made the file.
        *("task_type", "inference_mode", "revision", "auto_mapping", "peft_version"),
        *("runtime_config", "megatron_core"),
        "qalora_group_size",  # of use_qalora, which must be empty
    }
)
"""Fields of PEFT, and of MS-SWIFT's ``LoraConfig``, that do not change (α/r) BA."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The configuration of an adapter.

    Attributes:
        algorithm: LoRA, LoHa or LoKr.
        rank: r of the modules without one of their own; ``alpha`` likewise.
        rank_stabilized: whether the scale is α/√r instead of α/r (rsLoRA).
        transposed: whether the base stores weights as (in, out), as GPT-2 does.
        base: the name of the base model, as far as it is given.
        targets: the ends of the names of targeted modules; None if a regular expression names them.
        ranks, alphas: r and α of the modules that patterns name; the first that fits counts.
        where: the name of the file for errors.
    """

    algorithm: Algorithm
    rank: int
    alpha: float
    rank_stabilized: bool
    transposed: bool
    base: str | None
    targets: tuple[str, ...] | None
    ranks: tuple[tuple[ModulePattern, int], ...]
    alphas: tuple[tuple[ModulePattern, float], ...]
    where: str = CONFIG_NAME

    @classmethod
    def from_json(cls, data: bytes | str) -> AdapterConfig:
        """The configuration in the bytes of ``adapter_config.json``; raises as :meth:`of`."""
        if len(data) > MAX_CONFIG_BYTES:
            raise _bad(f"it has {len(data)} bytes or more, at most {MAX_CONFIG_BYTES} are read")
        written = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        try:
            fields = decode_json(with_constants_as_texts(written))
        except ValueError as error:
            raise _bad(f"it is not JSON: {error}") from None
        return cls.of(fields)

    @classmethod
    def of(cls, fields: Any, where: str = CONFIG_NAME) -> AdapterConfig:
        """The configuration with these fields, those of PEFT's ``LoraConfig`` and its like.

        Args:
            where: the name of the file for errors.

        Raises:
            InvalidCheckpoint: it is not of an adapter whose differences its factors make; names
                the field, its value and what to do.
        """
        try:
            return cls._of(fields, where)
        except InvalidCheckpoint as error:
            if where == CONFIG_NAME:
                raise
            told = str(error).removeprefix(f"{CONFIG_NAME}: ")
            raise InvalidCheckpoint(f"{where}: {told}") from None

    @classmethod
    def _of(cls, fields: Any, where: str) -> AdapterConfig:
        if not isinstance(fields, Mapping):
            raise _bad(f"it is not an object of fields but a {type(fields).__name__}")
        algorithm = _algorithm(fields)
        alpha = "lora_alpha" if algorithm == "LoRA" else "alpha"
        return cls(
            algorithm=algorithm,
            rank=_rank("r", fields.get("r")),
            alpha=_alpha(alpha, fields.get(alpha)),
            rank_stabilized=_flag(fields, "use_rslora"),
            transposed=_flag(fields, "fan_in_fan_out"),
            base=_base(fields.get("base_model_name_or_path")),
            targets=_targets(fields.get("target_modules")),
            ranks=tuple(
                (pattern, _rank(field, value))
                for pattern, field, value in _patterns(fields, "rank_pattern")
            ),
            alphas=tuple(
                (pattern, _alpha(field, value))
                for pattern, field, value in _patterns(fields, "alpha_pattern")
            ),
            where=where,
        )

    def require_patterns_for(self, modules: Iterable[str]) -> None:
        """Refuse patterns that would take too long on these modules.

        Raises:
            InvalidCheckpoint: the patterns would take too long.
        """
        patterns = [pattern for pattern, _ in (*self.ranks, *self.alphas)]
        if steps_of(patterns, modules) > MAX_STEPS:
            raise _bad(
                "its rank_pattern and alpha_pattern would take too long to try on all modules: "
                "write the names of the modules instead"
            )

    def rank_of(self, module: str) -> int:
        """r of a module, which ``rank_pattern`` may say."""
        return next((rank for pattern, rank in self.ranks if pattern.matches(module)), self.rank)

    def scale_of(self, module: str) -> float:
        """The factor of BA: α/r, or α/√r with rsLoRA."""
        alpha = next((a for pattern, a in self.alphas if pattern.matches(module)), self.alpha)
        rank = self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.rank_stabilized else rank)

    def require_target(self, module: str) -> None:
        """Require that ``target_modules`` names a module, as far as it is a list.

        Raises:
            InvalidCheckpoint: ``target_modules`` does not name the module.
        """
        if self.targets is None or any(
            module == target or module.endswith(f".{target}") for target in self.targets
        ):
            return
        raise _bad(
            f"its target_modules {quote(list(self.targets))} do not name {quote(module)}, which "
            f"has factors in the file: give the configuration that was saved with the file"
        )


def _algorithm(fields: Mapping[str, Any]) -> Algorithm:
    """The algorithm, where the fields leave nothing but its factors."""
    kind = fields.get("peft_type")
    kind = getattr(kind, "value", kind)
    algorithm = _ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithm is None:
        remedy = _NO_WEIGHTS if kind in _PROMPTS else _MERGE
        why = f"only adapters of type LORA, LOHA, LOKR can be compared: {remedy}"
        raise _field("peft_type", kind, why)
    for name, why in _FIELDS.items():
        if fields.get(name):
            raise _field(name, fields[name], why)
    bias = fields.get("bias")
    if bias not in (None, "none"):
        raise _field("bias", bias, f"biases are trained beside the factors: {_MERGE}")
    _check_start(fields.get("init_lora_weights"))
    known = _HARMLESS | _READ | (frozenset() if algorithm == "LoRA" else _OF_LYCORIS)
    for name, value in fields.items():
        if not isinstance(name, str):
            raise _bad(f"the name of a field is {quote(name)}")
        if value and name not in known:
            raise _field(
                name if name.isidentifier() and len(name) <= _MAX_NAME_LENGTH else quote(name),
                value,
                f"this field is not known here, and may make it more than its factors: {_MERGE}",
            )
    return algorithm


def _check_start(start: Any) -> None:
    if start is None or isinstance(start, bool):
        return
    if not isinstance(start, str) or start.lower() not in _STARTS:
        raise _field(
            "init_lora_weights",
            start,
            "the base's weights were changed before the training, so that the factors are not a "
            "difference from the published base: save the adapter with "
            "path_initial_model_for_weight_conversion, which PEFT has for this",
        )


def _rank(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_RANK:
        raise _field(name, value, f"a rank is a whole number from 1 to {_MAX_RANK}")
    return value


def _alpha(name: str, value: Any) -> float:
    number = type(value) in (int, float)
    if not number or not (0 < abs(value) <= MAX_SCALE):
        raise _field(name, value, "an alpha is a number other than 0")
    return float(value)


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _field(name, value, "it is true or false")
    return bool(value)


def _base(name: Any) -> str | None:
    if name is None or name == "":
        return None
    if not isinstance(name, str) or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise _field(
            "base_model_name_or_path",
            name,
            f"it is a name of at most {_MAX_NAME_LENGTH} printable characters",
        )
    return name


def _targets(value: Any) -> tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return None
    if not isinstance(value, (list, tuple, set)) or not all(map(_is_name, value)):
        raise _field("target_modules", value, "it is a list of names, or one expression")
    return tuple(sorted(value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not has_control_character(value)


def _patterns(fields: Mapping[str, Any], name: str) -> list[tuple[ModulePattern, str, Any]]:
    """The patterns of a field in their order, with the names of their entries and their values."""
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _field(name, value, "it is an object of values by module name")
    found = []
    for key, each in value.items():
        entry = f"{name}[{quote(key)}]"
        try:
            found.append((ModulePattern.of(key), entry, each))
        except ValueError as error:
            raise _field(entry, each, f"{error}: write the names of the modules instead") from None
    return found


def _field(name: str, value: Any, why: str) -> InvalidCheckpoint:
    what = "missing" if value is None else quote(value)
    return _bad(f"{name} is {what}: {why}")


def _bad(what: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(f"{CONFIG_NAME}: {what}")
