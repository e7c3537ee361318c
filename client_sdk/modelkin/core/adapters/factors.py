"""The factors of an adapter by their names, put together by modules and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from modelkin.core.adapters.config import AdapterConfig
from modelkin.core.adapters.names import ALPHA, Algorithm, PartName, part_of, reason_against
from modelkin.core.adapters.products import HadamardUpdate, KroneckerUpdate, Rows
from modelkin.core.adapters.spellings import Module, component_of_blocks
from modelkin.core.adapters.updates import (
    MAX_KEPT,
    Factor,
    LowRankUpdate,
    Scale,
    StoredScale,
    Update,
    matrix_shape,
)
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = ["Configs", "adapter_updates", "needs_config"]

Configs = Mapping[str, AdapterConfig]
"""Configurations by the component of a pipeline; that of all modules has the name ``""``."""

_OTHER_SIDE: Final = {"A": "B", "B": "A", "down": "up", "up": "down"}
_SAVE: Final = "save the adapter again"


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor of an adapter and its name."""

    name: PartName
    factor: Factor


@dataclass(frozen=True, slots=True)
class _Target:
    """All factors of one module, by their roles.

    Attributes:
        module: the module.
        algorithm: what its factors are factors of.
        parts: the factors; ``alpha`` is the α that lies beside them.
        where: the name of the file or model for errors.
    """

    module: Module
    algorithm: Algorithm
    parts: Mapping[str, _Part]
    alpha: Factor | None
    where: str

    @property
    def name(self) -> str:
        """The module's name in the base."""
        return self.module.name

    @property
    def tensor(self) -> str:
        """The name of the base's tensor that is changed."""
        return f"{self.name}.weight"

    def factor(self, role: str) -> Factor:
        """The factor of a role; raises InvalidCheckpoint where the file lacks it."""
        if role in self.parts:
            return self.parts[role].factor
        raise self.bad(f"has no {self._word(role)}: the file is incomplete, save it again")

    def _word(self, role: str) -> str:
        """A role as the file names it."""
        if self.algorithm != "LoRA":
            return f"{'hada' if self.algorithm == 'LoHa' else 'lokr'}_{role}"
        other = next(iter(self.parts.values())).name.word
        side = next(side for side in _OTHER_SIDE if other.endswith(side))
        return other.removesuffix(side) + _OTHER_SIDE[side]

    def bad(self, what: str) -> InvalidCheckpoint:
        """The error that names the module."""
        return InvalidCheckpoint(f"{self.where}: {quote(self.name)} {what}")


def needs_config(names: Mapping[str, object]) -> bool:
    """Whether the factors of these names have a scale that only a configuration says.

    PEFT writes it there. Factors of a component of a pipeline have it beside them, else it is 1.
    """
    parts = [part for part in map(part_of, names) if part is not None]
    scaled = {part.module.name for part in parts if part.role == ALPHA}
    return any(
        part.configured and part.module.component is None and part.module.name not in scaled
        for part in parts
    )


def adapter_updates(
    factors: Mapping[str, Factor], configs: Configs, where: str
) -> tuple[Update, ...]:
    """The differences of an adapter, sorted by the names of the base's tensors.

    Args:
        factors: all tensors of the adapter, by name.
        configs: its configurations. Without one, α is beside the factors, and the scale 1 without.
        where: the name of the file or model for errors.

    Raises:
        InvalidCheckpoint: a tensor that is not a factor, a factor without the others, none at all,
            shapes that do not fit, a rank other than the configuration's, factors of two adapters.
    """
    targets = _targets(factors, where)
    configured = {target.name: _config_of(target, configs) for target in targets}
    for config in configs.values():
        config.require_patterns_for(
            target.module.inner for target in targets if configured[target.name] is config
        )
    updates = [_update(target, configured[target.name]) for target in targets]
    return tuple(sorted(updates, key=lambda update: update.name))


def _targets(factors: Mapping[str, Factor], where: str) -> list[_Target]:
    """The factors by target and role."""
    parts = []
    for name, factor in factors.items():
        read = part_of(name)
        if read is None:
            raise _no_factor(where, name)
        parts.append(_Part(read, factor))
    _require_one_adapter(factors, parts, where)
    component = component_of_blocks(part.name.module for part in parts)
    named: dict[str, dict[str, _Part]] = {}
    for part in parts:
        module, role = part.name.module.within(component), part.name.role
        held = named.setdefault(module.name, {})
        if role in held:
            what = "alphas" if role == ALPHA else f"factors {role}"
            raise InvalidCheckpoint(f"{where}: {quote(module.name)} has two {what}: {_SAVE}")
        held[role] = part
    return [_target(name, parts, where) for name, parts in named.items()]


def _require_one_adapter(names: Iterable[str], parts: Iterable[_Part], where: str) -> None:
    """Require factors, all of one adapter."""
    adapters = [
        (n, part.name.adapter)
        for n, part in zip(names, parts, strict=True)
        if part.name.role != ALPHA
    ]
    if not adapters:
        raise InvalidCheckpoint(f"{where}: it holds no factors lora_A and lora_B: {_SAVE}")
    for name, adapter in adapters:
        if adapter != adapters[0][1]:
            raise InvalidCheckpoint(
                f"{where}: it holds several adapters, {quote(name)} is of another: save one alone"
            )


def _target(name: str, parts: dict[str, _Part], where: str) -> _Target:
    """The parts of one target, of one algorithm, none of them empty."""
    alpha = parts.pop(ALPHA, None)
    algorithms = {part.name.algorithm for part in parts.values()} - {None}
    if len(algorithms) != 1:
        what = "factors of two algorithms" if algorithms else "an alpha and no factors"
        raise InvalidCheckpoint(f"{where}: {quote(name)} has {what}: {_SAVE}")
    [algorithm] = algorithms
    assert algorithm is not None
    of = next(iter(parts.values())).name.module._replace(name=name)
    target = _Target(of, algorithm, parts, None if alpha is None else alpha.factor, where)
    for part in parts.values():
        if 0 in part.factor.shape:
            raise InvalidCheckpoint(
                f"{where}: the factors of {quote(name)} are empty, {part.name.word} has the shape "
                f"{list(part.factor.shape)}: gather them before they are saved, as ZeRO-3 needs "
                f"it (stage3_gather_16bit_weights_on_model_save), and {_SAVE}"
            )
    if target.alpha is not None and matrix_shape(target.alpha.shape) != (1, 1):
        raise target.bad(
            f"has an alpha of shape {list(target.alpha.shape)}: an alpha is one number; {_SAVE}"
        )
    return target


def _config_of(target: _Target, configs: Configs) -> AdapterConfig | None:
    """The configuration that says the scale of a target, if one does."""
    config = configs.get(target.module.component or "") or configs.get("")
    if config is None:
        return None
    if target.alpha is not None:
        raise target.bad(f"has an alpha beside it, and {config.where} says another: keep one")
    if config.algorithm != target.algorithm:
        raise target.bad(
            f"has factors of {target.algorithm}, and {config.where} is of {config.algorithm}: give "
            f"the configuration that was saved with the file"
        )
    config.require_target(target.module.inner)
    return config


def _update(target: _Target, config: AdapterConfig | None) -> Update:
    if target.algorithm == "LoRA":
        return _low_rank(target, config)
    if target.algorithm == "LoHa":
        return _hadamard(target, config)
    return _kronecker(target, config)


def _scale(target: _Target, config: AdapterConfig | None, rank: int | None) -> Scale:
    """The scale of a target whose factors have this rank; None if all are whole matrices."""
    if config is not None:
        wanted = config.rank_of(target.module.inner)
        if rank not in (None, wanted):
            raise InvalidCheckpoint(
                f"{target.where}: the factors of {quote(target.name)} have the rank {rank}, its "
                f"configuration says {wanted} (r or rank_pattern): give the configuration that was "
                f"saved with the file"
            )
        return config.scale_of(target.module.inner)
    if target.alpha is None or rank is None:  # LyCORIS scales no whole matrices
        return 1.0
    return StoredScale(target.alpha, rank)


def _low_rank(target: _Target, config: AdapterConfig | None) -> LowRankUpdate:
    """Check the two factors of a difference, and put them together."""
    a, b = target.factor("A"), target.factor("B")
    words = [target.parts[side].name for side in "AB"]
    if words[0].embedding != words[1].embedding:
        raise target.bad("has one factor as a layer and one as an embedding: save it again")
    kernel = matrix_shape(b.shape[1:])[1] if len(b.shape) > 1 else 0
    if not 2 <= len(a.shape) == len(b.shape) or kernel != 1:
        raise InvalidCheckpoint(
            f"{target.where}: {words[0].word} {list(a.shape)} and {words[1].word} {list(b.shape)} "
            f"of {quote(target.name)} do not fit: factors are two matrices, or two kernels of "
            f"which the second has one row and one column; merge the adapter into its base "
            f"(merge_and_unload) and give the merged model with its base"
        )
    if a.shape[0] != b.shape[1]:
        raise InvalidCheckpoint(
            f"{target.where}: {words[0].word} {list(a.shape)} and {words[1].word} {list(b.shape)} "
            f"of {quote(target.name)} do not fit: A has the rank {a.shape[0]} and B {b.shape[1]}; "
            f"{_SAVE}"
        )
    scale = _scale(target, config, a.shape[0])
    turned = config is not None and config.transposed and len(a.shape) == 2
    update = LowRankUpdate(target.tensor, a, b, scale, words[0].embedding or turned)
    _require_kept(target, update.rank, update.shape[1])
    return update


def _hadamard(target: _Target, config: AdapterConfig | None) -> HadamardUpdate:
    first, second = _product(target, "w1"), _product(target, "w2")
    if first.shape != second.shape:
        raise target.bad(
            f"has factors of two shapes, {list(first.shape)} and {list(second.shape)}: {_SAVE}"
        )
    scale = _scale(target, config, first.rank)
    return HadamardUpdate(target.tensor, first, second, scale)


def _kronecker(target: _Target, config: AdapterConfig | None) -> KroneckerUpdate:
    first, second = _whole_or_product(target, "w1"), _whole_or_product(target, "w2")
    if config is not None and len(second.left.shape) == 3:
        raise target.bad(
            f"has lokr_w2 of shape {list(second.left.shape)}, a kernel of one dimension, which "
            f"PEFT does not multiply as LoKr says: merge the adapter into its base "
            f"(merge_and_unload) and give the merged model with its base"
        )
    scale = _scale(target, config, second.rank if first.rank is None else first.rank)
    update = KroneckerUpdate(target.tensor, first, second, scale)
    _require_kept(target, 1, second.shape[1])
    return update


def _whole_or_product(target: _Target, role: str) -> Rows:
    factors = [each for each in (f"{role}_a", f"{role}_b") if each in target.parts]
    if role not in target.parts:
        return _product(target, role)
    if factors:
        raise target.bad(f"has lokr_{role} and lokr_{factors[0]}, which are in its place: {_SAVE}")
    whole = target.factor(role)
    if len(whole.shape) < 2:
        raise target.bad(f"has lokr_{role} of shape {list(whole.shape)}, no matrix: {_SAVE}")
    if role == "w1" and len(whole.shape) > 2:
        raise target.bad(f"has lokr_w1 of shape {list(whole.shape)}, which is a matrix: {_SAVE}")
    return Rows(whole, None)


def _product(target: _Target, role: str) -> Rows:
    left, right = target.factor(f"{role}_a"), target.factor(f"{role}_b")
    if len(left.shape) != 2 or len(right.shape) < 2 or left.shape[1] != right.shape[0]:
        raise target.bad(
            f"has {role}_a {list(left.shape)} and {role}_b {list(right.shape)}, which do not fit: "
            f"{_SAVE}"
        )
    _require_kept(target, right.shape[0], matrix_shape(right.shape)[1])
    return Rows(left, right)


def _require_kept(target: _Target, rank: int, width: int) -> None:
    """Refuse a factor that is too large to stay in memory while the other one is read."""
    if rank * width > MAX_KEPT:
        raise InvalidCheckpoint(
            f"{target.where}: the factors of {quote(target.name)}, of rank {rank} over {width} "
            f"columns, are beyond the {MAX_KEPT} entries that are kept: give the merged model"
        )


def _no_factor(where: str, name: str) -> InvalidCheckpoint:
    why = reason_against(name)
    return InvalidCheckpoint(
        f"{where}: tensor {quote(name)} is not a factor lora_A or lora_B"
        f"{f', {why}' if why else ''}: merge the adapter into its base (merge_and_unload) and give "
        f"the merged model with its base"
    )
