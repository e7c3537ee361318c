"""``Tracker``: the importance during a training run, from an average of its own or from Adam's.

All training loops share these rules: which models and optimizers can be read, and what a checkpoint
must keep so that a run continues as if it had never stopped. Nothing here depends on a library of
training loops.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from modelkin.core.importance import ImportanceKind
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from modelkin.torch import GradientMoment, adam_importance
from modelkin.torch.optimizer import check_keeps_second_moments
from modelkin.torch.vector import readable_parameters

__all__ = [
    "KINDS",
    "SPACE_KINDS",
    "State",
    "TrackedImportance",
    "Tracker",
    "check_kind",
    "check_unsharded",
    "read_state",
    "open_tracker",
    "write_state",
]

State = Mapping[str, Any]

log = logging.getLogger("modelkin.integrations")

TrackedImportance: TypeAlias = Literal["moment", "adam"]
KINDS: Final[tuple[TrackedImportance, ...]] = get_args(TrackedImportance)
SPACE_KINDS: Final[Mapping[TrackedImportance, ImportanceKind]] = {
    "moment": "grad_moment",
    "adam": "adam",
}
"""The name in spaces of each kind of importance."""
_ADAMS: Final = (
    *(torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam),
    torch.optim.SparseAdam,
)
"""The classes of torch that keep squared gradients; AdamW is an Adam."""
_OTHER_STATE: Final = re.compile(r"Lion|Adamax|[48]-?bit|Fp8", re.IGNORECASE)
"""What the names of optimizers say that keep no squared gradients, or in few bits."""
_FORMAT: Final = "modelkin-gradient-moment-1"
_ADVICE: Final = (
    "train data-parallel (DDP), or compute the support of a saved checkpoint, with "
    "modelkin.torch.delta_importance or `modelkin support`"
)


class Tracker(Protocol):
    """The importance of each parameter at any time of a training run."""

    def importance(self) -> Tensor:
        """The current importance; shape ``(M,)``, in layout order."""

    def state(self) -> dict[str, Any] | None:
        """The state that a checkpoint has to keep, copied to this machine's memory.

        None where the optimizer's own state is enough.
        """

    def close(self) -> None:
        """Stop tracking."""


def check_kind(importance: str) -> str:
    """Check the kind of importance, and return it.

    Raises:
        InvalidParameter: the kind is unknown.
    """
    if importance not in KINDS:
        raise InvalidParameter(
            f"importance must be one of {', '.join(map(repr, KINDS))}, not {importance!r}",
            field="importance",
        )
    return importance


def check_unsharded(model: nn.Module, optimizer: Any, wrapped: nn.Module) -> None:
    """Refuse a training if this process holds only a part of model, gradients or state.

    Args:
        model: the model itself.
        optimizer: torch's own optimizer, unwrapped.
        wrapped: the model as the training calls it.

    Raises:
        InvalidParameter: names the sharded part, and what to do instead.
    """
    readable_parameters(model)  # refuses DTensors and the flat parameters of FSDP
    is_sharded = any(
        type(part).__name__ == "FullyShardedDataParallel" for part in wrapped.modules()
    )
    if is_sharded or any(hasattr(p, "ds_id") for p in model.parameters()):
        raise InvalidParameter(
            f"the parameters of this {type(model).__name__} are sharded over processes, and an "
            f"importance needs them whole: {_ADVICE}",
            field="model",
        )
    if type(optimizer).__module__.partition(".")[0] == "deepspeed":
        raise InvalidParameter(
            f"this {type(optimizer).__name__} is DeepSpeed's, which holds a part of the gradients "
            f"and of the state in each process: {_ADVICE}",
            field="optimizer",
        )


def open_tracker(
    kind: TrackedImportance, model: nn.Module, optimizer: Any, beta: float, state: State | None
) -> Tracker:
    """Start tracking.

    Args:
        kind: ``"moment"`` or ``"adam"``.
        model: the unsharded model on this device.
        optimizer: torch's own optimizer, unwrapped.
        beta: what is kept of the old average per optimizer step, between 0 and 1.
        state: the result of :func:`read_state`, for a run that goes on; None for a new one.

    Raises:
        InvalidParameter: the optimizer is not an Adam for kind ``"adam"``, or trains another model.
        InvalidLayout: the state is of another model.
    """
    return _Adam(model, optimizer) if kind == "adam" else _Moment(model, optimizer, beta, state)


class _Moment:
    """An average of the squared gradients, read just before the optimizer uses them."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, beta: float, state: State | None
    ) -> None:
        self._moment = GradientMoment(model, optimizer, beta=beta)
        if state is not None:
            self._moment.load_state_dict(state)
            if self._moment.beta != beta:
                log.warning("beta stays %g, as the checkpoint has it", self._moment.beta)
        self._moment.__enter__()

    def importance(self) -> Tensor:
        return self._moment.importance()

    def state(self) -> dict[str, Any] | None:
        state = self._moment.state_dict()
        # Copy, since training continues while some loops still write; to the host, since the
        # device may be full.
        return {
            **state,
            "moments": {n: m.to("cpu", copy=True) for n, m in state["moments"].items()},
        }

    def close(self) -> None:
        self._moment.__exit__(None, None, None)


class _Adam:
    """The optimizer's own average."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if _keeps_no_second_moment(optimizer):
            raise InvalidParameter(
                f"importance='adam' reads the state of Adam, and this is a "
                f"{type(optimizer).__name__}: importance='moment' goes with any optimizer",
                field="importance",
            )
        self._model, self._optimizer = model, optimizer
        self._is_checked = False
        self._handle = optimizer.register_step_post_hook(self._check)

    def _check(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Check the state once the first step has made it: few classes say what they keep."""
        if not self._is_checked and optimizer.state:
            self._is_checked = True
            try:
                check_keeps_second_moments(optimizer)
            except InvalidParameter as error:
                raise InvalidParameter(
                    f"importance='adam' reads the state of Adam: {error}; importance='moment' "
                    f"does so",
                    field="importance",
                ) from error

    def importance(self) -> Tensor:
        return adam_importance(self._optimizer, self._model)

    def state(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        self._handle.remove()


def _keeps_no_second_moment(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the class of an optimizer says that it keeps no plain ``exp_avg_sq``."""
    kind = type(optimizer)
    if not all("betas" in group for group in optimizer.param_groups):
        return True
    if kind.__module__.startswith("torch.optim."):
        return not isinstance(optimizer, _ADAMS)
    return kind.__module__.startswith("bitsandbytes") or bool(_OTHER_STATE.search(kind.__name__))


def write_state(path: Path, state: State, step: int) -> None:
    """Write the state of an average beside a checkpoint, as safetensors, completely or not at all.

    Args:
        path: the file's path.
        state: the state, from :meth:`Tracker.state`.
        step: the training's step that the state belongs to, which the file records.

    Raises:
        OSError: the file cannot be written; no partial file remains.
    """
    metadata = {
        "format": _FORMAT,
        "step": str(step),
        "beta": repr(state["beta"]),
        "steps": str(state["steps"]),
        "growth": repr(state["growth"]),
    }
    partial = path.with_name(f"{path.name}.part")
    moments = {n: m.contiguous() for n, m in state["moments"].items()}
    try:
        save_file(moments, partial, metadata=metadata)
        partial.replace(path)
    except SafetensorError as error:  # a missing folder or a full disk
        partial.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {error}") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_state(path: Path, step: int) -> dict[str, Any]:
    """Read the state that :func:`write_state` wrote.

    Args:
        path: the file's path.
        step: the step from which the training continues; a file of another step is refused.

    Raises:
        InvalidCheckpoint: the file is damaged, of another kind, or of another step.
        OSError: the file is missing or unreadable.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise InvalidCheckpoint(f"{path} holds no average of modelkin's")
            if metadata["step"] != str(step):
                raise InvalidCheckpoint(f"{path} is of step {metadata['step']}, not {step}")
            return {
                "beta": float(metadata["beta"]),
                "steps": int(metadata["steps"]),
                "growth": float(metadata["growth"]),
                "moments": {name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118
            }
    except (SafetensorError, KeyError, ValueError) as error:
        if isinstance(error, InvalidCheckpoint):
            raise
        raise InvalidCheckpoint(f"{path} cannot be read: {error}") from error
