"""What sites answer to training messages, as the rounds without an engine read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.client import FLModel, ParamsType

from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import Reply
from modelkin.integrations.nvflare._messages import examples_of, said
from modelkin.integrations.nvflare._shards import SHARDS

__all__ = ["arrays_of", "read_reply"]


def read_reply(answer: FLModel, sent: Model) -> Reply:
    """What a site answered, unchecked; a difference becomes a model.

    Args:
        answer: the answer.
        sent: the model that the site was sent.
    """
    arrays: Model = arrays_of(answer.params)
    if answer.params_type == ParamsType.DIFF:
        arrays = _changed(sent, arrays)
    values = said(answer)
    support = None
    if values is not None:  # without a name: NVFlare knows who it is
        support = {n: v for n, v in values.items() if n not in ("name", SHARDS)} or None
    return Reply(arrays, examples_of(answer), support, answer.metrics)


def arrays_of(params: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays by name, of what a site sent; empty where that is nothing of the kind."""
    if not isinstance(params, Mapping):
        return {}
    return {str(name): _array_of(values) for name, values in params.items()}


def _array_of(values: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError):  # such as a list of lists of unequal lengths
        return np.empty(0, object)  # which the rounds refuse, and name


def _changed(before: Model, steps: Model) -> Model:
    """Arrays and what was added to them, in a type that holds both: the mean is rounded once."""
    return {
        name: _sum(before[name], step)
        if name in before and before[name].shape == step.shape and step.dtype.kind in "fiub"
        else step  # which the rounds refuse, and name
        for name, step in steps.items()
    }


def _sum(values: np.ndarray[Any, Any], step: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype.kind == "b":  # a sum of truth values would be one of them, whatever was added
        values = values.astype(np.int8)
    with np.errstate(over="ignore", invalid="ignore"):  # the rounds refuse what is not finite
        return np.asarray(values + step)
