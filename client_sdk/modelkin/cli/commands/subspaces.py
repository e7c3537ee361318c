"""The commands ``subspace`` and ``start``: the subspace of data, and where a newcomer starts."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin._whole_files import write_whole
from modelkin.cli.commands.newcomers import placement_notes
from modelkin.cli.inputs import refuse_fingerprint
from modelkin.cli.options import add_service
from modelkin.cli.output import Answer, fields_of, pairs, quantity
from modelkin.cli.texts import share_text
from modelkin.client import Client
from modelkin.core.subspaces.fit import FewSamplesWarning, fit_subspace
from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter

__all__ = ["start", "start_options", "subspace", "subspace_answer", "subspace_options"]


def subspace_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subspace``."""
    parser.add_argument("data", metavar="DATA", help="a .npy file of samples, (n, ...)")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file to write; - for standard output",
    )
    parser.set_defaults(inputs=("data",), outputs=("output",))
    parser.add_argument(
        "--labels", metavar="FILE", help="a .npy file with the class of each sample"
    )
    parser.add_argument(
        "--rank", type=int, default=3, metavar="COUNT", help="the directions of a class; default 3"
    )
    parser.add_argument(
        "--whole-rank",
        type=int,
        default=10,
        metavar="COUNT",
        help="the directions of all samples; default 10",
    )
    space = parser.add_argument_group("as the space says")
    space.add_argument(
        "--constant",
        type=float,
        default=0.5,
        metavar="C",
        help="the constant feature that each sample gets; default 0.5",
    )
    space.add_argument("--weighting", choices=("spectrum", "flat"), default="spectrum")
    group = parser.add_argument_group("what it shows of the samples")
    group.add_argument(
        "--samples-per-direction",
        type=int,
        default=20,
        metavar="COUNT",
        help="the samples that allow one direction; default 20, below which single samples show",
    )
    group.add_argument(
        "--epsilon",
        type=float,
        metavar="E",
        help="add noise of this epsilon, for differential privacy",
    )
    group.add_argument(
        "--delta",
        type=float,
        default=1e-5,
        metavar="D",
        help="the delta of the noise; default 1e-5",
    )
    group.add_argument(
        "--classes",
        type=int,
        metavar="COUNT",
        help="the number of classes, with noise and labels: they are 0 to COUNT - 1",
    )


def start_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``start``."""
    add_service(parser)
    parser.add_argument("file", metavar="FILE", help="a data subspace, as `subspace` writes it")
    parser.set_defaults(inputs=("file",))
    parser.add_argument(
        "--clustering", default="latest", metavar="ID", help="the clustering's id; default latest"
    )
    parser.add_argument(
        "--compare",
        choices=("classes", "whole"),
        help="how subspaces are compared; by default as in the clustering",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="fetch its learngene to this file")


def subspace(arguments: argparse.Namespace) -> Answer:
    """``modelkin subspace``: write the subspace of samples to a file."""
    samples = _array(arguments.data)
    labels = None if arguments.labels is None else _array(arguments.labels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FewSamplesWarning)
        made = fit_subspace(
            samples,
            labels,
            rank=arguments.rank,
            whole_rank=arguments.whole_rank,
            constant=arguments.constant,
            weighting=arguments.weighting,
            samples_per_direction=arguments.samples_per_direction,
            epsilon=arguments.epsilon,
            delta=arguments.delta,
            classes=None if arguments.classes is None else range(arguments.classes),
        )
    data = made.to_bytes()
    write_whole(arguments.output, data)
    text = f"{arguments.output}: {_description(made)}, {len(data):,} bytes"
    fields = {"file": arguments.output, "bytes": len(data), **_fields(made)}
    return Answer(text, fields, tuple(str(each.message) for each in caught))


def start(arguments: argparse.Namespace) -> Answer:
    """``modelkin start``: the cluster of a newcomer's data, and the weights to start from."""
    made = _read(arguments.file)
    with Client(arguments.url, arguments.api_key) as client:
        placed = client.clusterings.assign(
            arguments.space, made, arguments.clustering, compare=arguments.compare
        )
        if arguments.output is not None:
            if placed.learngene is None:
                raise InvalidParameter(
                    f"nothing was published for {_place(placed.cluster)} of {arguments.space}: "
                    f"leave --output out, and start at random"
                )
            client.learngenes.fetch(placed.learngene, arguments.output)
    gene = placed.learngene
    rows = {
        "cluster": "none" if placed.cluster < 0 else str(placed.cluster),
        "compared by": placed.compare or "",
        "nearest": placed.votes[0].model if placed.votes else "",
        "similarity": share_text(placed.similarity),
        "margin": share_text(placed.margin),
        "learngene": "none"
        if gene is None
        else f"version {gene.version} of {gene.cluster}, {quantity(gene.num_tensors, 'tensor')}",
    }
    if arguments.output is not None:
        rows["file"] = arguments.output
    return Answer(pairs(rows), fields_of(placed), placement_notes(placed))


def _place(cluster: int) -> str:
    return "the whole space" if cluster < 0 else f"cluster {cluster}"


def subspace_answer(made: Subspace, size: int) -> Answer:
    """The answer of ``modelkin inspect`` for a data subspace."""
    noise = "none" if made.epsilon is None else f"epsilon {made.epsilon:g}, delta {made.delta:g}"
    rows = {
        "data subspace": _description(made),
        "classes": ", ".join(map(str, made.labels)) or "none",
        "constant": f"{made.constant:g}, weighting {made.weighting}",
        "noise": noise,
        "size": f"{size:,} bytes",
        "digest": made.digest,
    }
    return Answer(pairs(rows), {"kind": "subspace", "bytes": size, **_fields(made)})


def _description(made: Subspace) -> str:
    columns, classes = quantity(made.num_columns, "direction"), len(made.labels)
    of = f", {classes} {'class' if classes == 1 else 'classes'}" if classes else ""
    return f"{columns} of {quantity(made.num_features, 'feature')}{of}"


def _fields(made: Subspace) -> dict[str, Any]:
    return {
        "num_features": made.num_features,
        "columns": made.num_columns,
        "classes": list(made.labels),
        "constant": made.constant,
        "weighting": made.weighting,
        "epsilon": made.epsilon,
        "delta": made.delta,
        "digest": made.digest,
    }


def _array(path: str) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file; a pickle is never loaded.

    Raises:
        InvalidParameter: the file holds no array.
    """
    try:
        loaded = np.load(path, allow_pickle=False, mmap_mode="r")  # noqa: TID251 - a user's array
    except (ValueError, EOFError) as error:
        raise InvalidParameter(f"{path} holds no array, as numpy.save writes it: {error}") from None
    if not isinstance(loaded, np.ndarray):
        raise InvalidParameter(f"{path} holds several arrays: save one with numpy.save")
    return loaded


def _read(path: str) -> Subspace:
    """The data subspace of a file.

    Raises:
        InvalidParameter: the file is a support, a signature or a fingerprint of a checkpoint, which
            other commands read.
        InvalidSubspace: the file is damaged, or of another kind.
    """
    data = Path(path).read_bytes()
    refuse_fingerprint(path)
    other = {b"MKSP": "a support", b"MKSG": "a signature"}.get(data[:4])
    if other is not None:
        raise InvalidParameter(
            f"{path} is {other}, and `start` takes a data subspace, as `modelkin subspace` writes "
            f"it: `modelkin assign {path}` finds the cluster of {other}"
        )
    return Subspace.from_bytes(data)
