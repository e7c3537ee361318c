"""The command ``inspect``: describe the content of a file."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from modelkin.checkpoints import Checkpoint
from modelkin.checkpoints.anatomies import is_fingerprint
from modelkin.cli.commands import subspaces
from modelkin.cli.inputs import open_source
from modelkin.cli.options import FILE
from modelkin.cli.output import Answer, pairs, quantity, table
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.rows import WHY
from modelkin.core.importance import Origin
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support

__all__ = ["show", "show_options"]


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``inspect``."""
    parser.add_argument("input", metavar="FILE|CHECKPOINT", help=FILE)
    parser.set_defaults(inputs=("input",))


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin inspect``: describe a file; those of modelkin's own are verified whole."""
    if is_fingerprint(arguments.input):
        size = Path(arguments.input).stat().st_size
        return _inspect_fingerprint(Fingerprint.load(arguments.input), size)
    source = open_source(arguments, arguments.input)
    if isinstance(source, Support):
        return _inspect_support(source, Path(arguments.input).stat().st_size)
    if isinstance(source, Signature):
        return _inspect_signature(source)
    if isinstance(source, Subspace):
        return subspaces.subspace_answer(source, Path(arguments.input).stat().st_size)
    return _inspect_checkpoint(source)


def _inspect_support(support: Support, size: int) -> Answer:
    return Answer(
        text=pairs(
            {
                "support": f"{support.k:,} of {support.num_parameters:,} parameters "
                f"({support.density:.2%})" + (", ordered" if support.ordered else ""),
                **_gap_rows(support),
                "size": f"{size:,} bytes, {8 * size / support.k:.2f} bits an index",
                "digest": support.digest,
                **_origin_rows(support.origin),
            }
        ),
        fields={
            "kind": "support",
            "num_parameters": support.num_parameters,
            "support_size": support.k,
            "density": support.density,
            "ordered": support.ordered,
            "gaps": [list(gap) for gap in support.gaps.ranges],
            "bytes": size,
            "digest": support.digest,
            **_origin_rows(support.origin),
        },
    )


def _gap_rows(support: Support) -> dict[str, str]:
    """A row for the parameters that a support with gaps covers."""
    if not support.gaps:
        return {}
    m = support.num_parameters
    covered = m - support.gaps.size
    return {"covers": f"{covered:,} of {m:,} parameters ({covered / m:.1%})"}


def _origin_rows(origin: Origin | None) -> dict[str, str]:
    """Rows for the origin of a support."""
    if origin is None or origin.importance is None:
        return {}
    note = origin.importance.note
    return {"importance": str(origin.importance), **({} if note is None else {"note": note})}


def _inspect_signature(signature: Signature) -> Answer:
    return Answer(
        text=pairs(
            {
                "signature": f"of {signature.support_size:,} of {signature.num_parameters:,} "
                f"parameters",
                "scheme": f"{signature.scheme}, {signature.num_perm} permutations, "
                f"seed {signature.seed}",
            }
        ),
        fields={
            "kind": "signature",
            "num_parameters": signature.num_parameters,
            "support_size": signature.support_size,
            "scheme": signature.scheme,
            "num_perm": signature.num_perm,
            "seed": signature.seed,
        },
    )


def _inspect_fingerprint(fingerprint: Fingerprint, size: int) -> Answer:
    tensors, total = fingerprint.tensors, sum(fingerprint.lines.values())
    sampled = np.bincount(fingerprint.owners, minlength=len(tensors)).tolist()
    keys = fingerprint.distinct.size
    summary = {
        "fingerprint": f"{quantity(keys, 'key')} of {quantity(total, 'line')} in "
        f"{quantity(len(tensors), 'tensor')}",
        "scale": f"{fingerprint.scale:,}"
        + ("" if fingerprint.scale == 1 else f": one line in {fingerprint.scale:,} is kept"),
        "size": f"{size:,} bytes, {size / max(keys, 1):.1f} a key",
        "digest": fingerprint.digest,
    }
    rows = [
        (
            ", ".join(tensor.names),
            str(list(tensor.shape)),
            f"{sum(tensor.lines.values()):,}",
            f"{held:,}",
            "" if tensor.reason is None else WHY[tensor.reason],
        )
        for tensor, held in zip(tensors, sampled, strict=True)
    ]
    rows = [*NetworkOrder.of([tensor.names[0] for tensor in tensors]).arrange(rows)]
    columns = ("TENSOR", "SHAPE", "LINES", "KEYS", "NOT COMPARED")
    return Answer(
        text=pairs(summary) + "\n\n" + table(columns, rows),
        fields={
            "kind": "fingerprint",
            "scheme": "lines1",
            "scale": fingerprint.scale,
            "keys": keys,
            "lines": total,
            "bytes": size,
            "digest": fingerprint.digest,
            "tensors": [
                {
                    "names": list(tensor.names),
                    "shape": list(tensor.shape),
                    "lines": sum(tensor.lines.values()),
                    "keys": held,
                    "reason": None if tensor.reason is None else tensor.reason.value,
                    "signature": tensor.signature is not None,
                }
                for tensor, held in zip(tensors, sampled, strict=True)
            ],
        },
    )


def _inspect_checkpoint(checkpoint: Checkpoint) -> Answer:
    dtypes = ", ".join(f"{dtype} {count:,}" for dtype, count in checkpoint.dtypes.items())
    read = NetworkOrder.of([t.name for t in checkpoint.tensors]).arrange(checkpoint.tensors)
    rows = [(t.name, t.dtype, str(list(t.shape)), f"{t.size:,}") for t in read]
    summary = {
        "checkpoint": f"{checkpoint.num_parameters:,} parameters in "
        f"{quantity(len(checkpoint.tensors), 'tensor')}",
        "dtypes": dtypes,
    }
    columns = ("TENSOR", "DTYPE", "SHAPE", "PARAMETERS")
    return Answer(
        text=pairs(summary) + "\n\n" + table(columns, rows),
        fields={
            "kind": "checkpoint",
            "num_parameters": checkpoint.num_parameters,
            "dtypes": checkpoint.dtypes,
            "tensors": [
                {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)}
                for t in checkpoint.tensors
            ],
            "skipped": [
                {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)}
                for t in checkpoint.skipped
            ],
        },
        notes=checkpoint.notes,
    )
