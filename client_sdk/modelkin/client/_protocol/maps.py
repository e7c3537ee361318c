"""Calls about maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._protocol.jobs import read_job
from modelkin.types.jobs import JobInfo
from modelkin.types.maps import ModelMap

__all__ = ["create", "get"]


def create(space: str, parameters: Mapping[str, Any]) -> Call[JobInfo]:
    """Starts a job that draws the map of a space."""
    # A second request finds the job of the first, or at most repeats its work.
    return Call(requests.post(f"{requests.space_path(space)}/maps", dict(parameters)), read_job)


def get(space: str) -> Call[ModelMap]:
    """Reads the newest map of a space."""
    return Call(requests.get(f"{requests.space_path(space)}/maps/latest"), reader(ModelMap))
