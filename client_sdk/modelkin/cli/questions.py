"""The file of a search: in the form of the space's models, and not stored."""

from __future__ import annotations

import argparse

from modelkin.checkpoints import Checkpoint
from modelkin.cli.blinding import blinding_of_source
from modelkin.cli.fitting import require_fit
from modelkin.cli.inputs import open_source, plan_of, sets_size
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
    """The content to send for a file, with notes; a checkpoint's support has the K of the space.

    Args:
        client: an open client, which reads the space's settings.
        arguments: the command's arguments, with the options of a selection and of blinding.
        path: the path of a support, a signature, a data subspace or a checkpoint.
        space: the name of the space that is searched; its settings decide K and the order.
        by_ranks: whether the search compares the ranks of indices.

    Raises:
        InvalidParameter: options contradict each other, or are not for this file.
        SpaceMismatch: the file has other tensors, another kind of importance, or another base; or
            the space requires a blinded or ordered file, and this one is not.
    """
    source = open_source(arguments, path, space)
    blinding = blinding_of_source(arguments, source)
    require_fit(path, source, blinding, space, ordered=by_ranks)
    content: Content
    if isinstance(source, Checkpoint):
        plan = plan_of(arguments, source, space)
        k = None if sets_size(arguments) else client.spaces.support_size(space.name).k
        content, notes = plan.support(k), plan.notes
    else:
        content, notes = source, unchecked_note(path, source, space)
    if blinding is not None and isinstance(content, Support):
        content = blinding.blind(content)
    return content, notes
