"""The file that a service is asked about: as its space has the models, and not stored."""

from __future__ import annotations

import argparse

from modelkin.checkpoints import Checkpoint
from modelkin.cli.blinding import blinding_of_source
from modelkin.cli.fitting import require_fit
from modelkin.cli.inputs import chosen_way, open_source, plan_of
from modelkin.cli.origins import unchecked_note
from modelkin.client import Client
from modelkin.client._protocol.calls.requests import Content
from modelkin.core.support import Support
from modelkin.types.spaces import SpaceInfo

__all__ = ["question"]


def question(
    client: Client,
    arguments: argparse.Namespace,
    path: str,
    space: SpaceInfo,
    *,
    by_ranks: bool = False,
) -> tuple[Content, tuple[str, ...]]:
    """What is sent of a file, and what to note; a checkpoint has the K of the space.

    Args:
        client: of the service.
        arguments: of the command, with the options of a selection and of blinding.
        path: of a support, a signature, a data subspace or a checkpoint.
        space: that is asked.
        by_ranks: whether the ranks of indices are asked for.

    Raises:
        InvalidParameter: options that contradict each other, or that are not for this file.
        SpaceMismatch: it has other tensors, another kind of importance, or another base; or
            it is not blinded or ordered, and has to be.
    """
    source = open_source(arguments, path, space)
    blinding = blinding_of_source(arguments, source)
    require_fit(path, source, blinding, space, ordered=by_ranks)
    content: Content
    if isinstance(source, Checkpoint):
        plan = plan_of(arguments, source, space)
        k = None if chosen_way(arguments) else client.spaces.support_size(space.name).k
        content, notes = plan.support(k), plan.notes
    else:
        content, notes = source, unchecked_note(path, source, space)
    if blinding is not None and isinstance(content, Support):
        content = blinding.blind(content)
    return content, notes
