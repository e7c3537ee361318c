"""The commands about supports, a function each, from arguments to an :class:`Answer`.

``run`` prints the answers. ``checkpoints`` and ``core`` compute, and the client asks the service.
The commands about kin and about hubs have modules of their own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelkin import checkpoints
from modelkin._validation import check_model_name
from modelkin.checkpoints import Adapter, Checkpoint
from modelkin.cli import subspaces
from modelkin.cli.cells import SCORED, count_cell, scored, share_cell
from modelkin.cli.inputs import (
    Plan,
    Source,
    check_options,
    chosen_way,
    open_source,
    pass_progress,
    plan_of,
    refuse_selection,
    whole_layout,
)
from modelkin.cli.origins import unchecked_note, write_origin
from modelkin.cli.output import Answer, counted, fields_of, noted, pairs, table
from modelkin.client import Client
from modelkin.client._protocol.requests import Content, Query
from modelkin.core.importance import Origin
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import ApiError, ConflictError, InvalidParameter
from modelkin.types.models import ModelInfo
from modelkin.types.search import Neighbors
from modelkin.types.spaces import SpaceInfo, SubspaceSpec

__all__ = ["caveats", "donors", "inspect", "neighbors", "overlap", "push", "support"]


def support(arguments: argparse.Namespace) -> Answer:
    """``modelkin support``: write a checkpoint's support to a file."""
    checkpoint = checkpoints.open_checkpoint(arguments.checkpoint, arguments.exclude)
    plan = plan_of(arguments, checkpoint)
    base = plan.base
    written = checkpoints.write_support(
        arguments.output, checkpoint, base, plan.rule, pass_progress(checkpoint)
    )
    origin = Origin(plan.importance, checkpoint.layout)
    write_origin(arguments.output, written.digest, origin)
    density = written.k / written.num_parameters
    kind = "|w|" if base is None else "|w - base|"
    if isinstance(checkpoint, Adapter):
        kind = "|BA|"
    return Answer(
        text=(
            f"{arguments.output}: {written.k:,} of {written.num_parameters:,} parameters "
            f"({density:.2%}) with {written.coverage:.1%} of all {kind}, {written.size:,} bytes"
        ),
        fields={
            "file": arguments.output,
            "bytes": written.size,
            "kind": plan.importance.kind,
            "num_parameters": written.num_parameters,
            "support_size": written.k,
            "density": density,
            "coverage": written.coverage,
            "digest": written.digest,
        },
        notes=plan.notes,
    )


def push(arguments: argparse.Namespace) -> Answer:
    """``modelkin push``: store a support or signature in a space."""
    described = _metadata(arguments)
    notes: tuple[str, ...] = ()
    check_options(arguments, arguments.input)
    with Client(arguments.url, arguments.api_key) as client:
        space, source = _space_and_source(client, arguments)
        value: Content
        if isinstance(source, Checkpoint):
            value, notes = _agreed(client, arguments, plan_of(arguments, source, space))
        else:
            value, notes = source, unchecked_note(arguments.input, source, space)
        if arguments.signature_only and isinstance(value, Support):
            value = _signed(value, space or client.spaces.get(arguments.space))
        info = _describe(client, _put(client, arguments, value), described)
    more = f", tags {', '.join(info.tags)}" if info.tags else ""
    more += f", base model {info.base_model}" if info.base_model else ""
    if info.kind == "subspace":
        size = counted(info.support_size, "direction")
        where = f"{info.model} in space {info.space}: revision {info.revision}"
        text = f"{where}, a data subspace of {size}{more}"
        return Answer(text, fields_of(info), notes)
    what = "support" if info.kind == "support" else "signature of a support"
    return Answer(
        text=(
            f"{info.model} in space {info.space}: revision {info.revision}, a {what} "
            f"of {info.support_size:,} indices{more}"
        ),
        fields=fields_of(info),
        notes=notes,
    )


def neighbors(arguments: argparse.Namespace) -> Answer:
    """``modelkin neighbors``: neighbours of a stored model, or of a file that is not stored."""
    with Client(arguments.url, arguments.api_key) as client:
        query, notes = _query(client, arguments)
        found = client.neighbors(
            arguments.space,
            query,
            k=arguments.count,
            min_similarity=arguments.min_similarity,
            min_kappa=arguments.min_kappa,
            method=arguments.method,
            tags=arguments.tag,
        )
    rows = [(*scored(n), share_cell(n.jaccard), count_cell(n.shared_indices)) for n in found]
    text = table((*SCORED, "JACCARD", "SHARED"), rows) if rows else "no neighbours"
    return Answer(text, fields_of(found), (*notes, *caveats(found)))


def donors(arguments: argparse.Namespace) -> Answer:
    """``modelkin donors``: donors of a stored model, or of a file that is not stored."""
    with Client(arguments.url, arguments.api_key) as client:
        query, notes = _query(client, arguments)
        found = client.donors(
            arguments.space,
            query,
            k=arguments.count,
            tags=arguments.tag,
            include_unrelated=arguments.include_unrelated,
        )
    rows = [(*scored(d), share_cell(d.weight), "unrelated" if d.unrelated else "") for d in found]
    text = table((*SCORED, "WEIGHT", ""), rows) if rows else "no donors"
    return Answer(text, fields_of(found), (*notes, *noted(_as_options(found.note))))


def _as_options(note: str | None) -> str | None:
    """A note of donors with the option of the command line for the service's parameter."""
    return note and note.replace("include_unrelated=true", "--include-unrelated")


def overlap(arguments: argparse.Namespace) -> Answer:
    """``modelkin overlap``: compare two stored models."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.overlap(arguments.space, arguments.a, arguments.b)
    summary = {
        "similarity": share_cell(found.similarity),
        "by chance": share_cell(found.expected),
        "kappa": share_cell(found.kappa),
        "jaccard": share_cell(found.jaccard),
        "shared indices": count_cell(found.shared_indices),
    }
    text = pairs(summary)
    if found.tensors:
        columns = ("TENSOR", "PARAMETERS", "A", "B", "SHARED", "SIMILARITY", "CHANCE", "KAPPA")
        rows = [
            (
                t.name,
                *(f"{count:,}" for count in (t.size, t.a, t.b, t.shared_indices)),
                *map(share_cell, (t.similarity, t.expected, t.kappa)),
            )
            for t in found.tensors
        ]
        text += "\n\n" + table(columns, rows)
    return Answer(text, fields_of(found), noted(found.note))


def inspect(arguments: argparse.Namespace) -> Answer:
    """``modelkin inspect``: describes a file; supports and signatures are verified whole."""
    source = open_source(arguments, arguments.input)
    if isinstance(source, Support):
        return _inspect_support(source, Path(arguments.input).stat().st_size)
    if isinstance(source, Signature):
        return _inspect_signature(source)
    if isinstance(source, Subspace):
        return subspaces.inspected(source, Path(arguments.input).stat().st_size)
    return _inspect_checkpoint(source)


def caveats(found: Neighbors) -> tuple[str, ...]:
    """What may keep these neighbours from being the nearest, a sentence each."""
    said = []
    if found.degraded:
        said.append(
            "found by another method: the buckets are unavailable, or a stored file is damaged"
        )
    if found.truncated:
        said.append(
            "the time for the answer was over: other models may be as near"
            if found.method == "exact"
            else "buckets with too many models were left out: other models may be as near"
        )
    if found.ties_left_out:
        said.append(
            f"{found.ties_left_out:,} more models may be as near, and S of the last one too low by "
            f"{found.similarity_slack:.3f}: --method exact compares them all"
        )
    return (*said, *noted(found.note))


def _space_and_source(
    client: Client, arguments: argparse.Namespace
) -> tuple[SpaceInfo | None, Source]:
    """The space of a push, made with ``--create`` where it does not exist, and the input for it.

    The space is None for a key that may write and not read: the service then compares.
    """
    path: str = arguments.input
    space = _found(client, arguments)
    if space is None and arguments.create:
        space = _made(client, arguments, open_source(arguments, path))
    return space, open_source(arguments, path, space)


def _found(client: Client, arguments: argparse.Namespace) -> SpaceInfo | None:
    try:
        return client.spaces.get(arguments.space)
    except ApiError as error:
        if error.status == 403 or (error.problem_code == "space_not_found" and arguments.create):
            return None
        raise


def _made(client: Client, arguments: argparse.Namespace, source: Source) -> SpaceInfo | None:
    """A new space for the input; None where another space has the name and cannot be read."""
    if isinstance(source, Subspace):
        spec = SubspaceSpec(constant=source.constant, weighting=source.weighting)
        return client.ensure_space(
            arguments.space,
            kind="subspaces",
            num_parameters=source.num_features,
            subspaces=spec,
        )
    if not isinstance(source, Checkpoint):
        return client.ensure_space(arguments.space, num_parameters=source.num_parameters)
    importance = plan_of(arguments, source).importance
    layout, exclude = whole_layout(arguments, source)
    try:
        return client.ensure_space(
            arguments.space, layout=layout, importance=importance, exclude=exclude
        )
    except ConflictError:  # made by another meanwhile
        return _found(client, arguments)


def _agreed(
    client: Client, arguments: argparse.Namespace, plan: Plan
) -> tuple[Support, tuple[str, ...]]:
    """The checkpoint's support of the size that the space asks for, with notes.

    A size on the command line stays. The K* of the file alone is reported to the space, whose
    answer is the size.
    """
    chosen = plan.support()
    if arguments.support_size is not None or arguments.fraction is not None:
        return chosen, plan.notes
    size = client.spaces.report_support_size(arguments.space, chosen.k, client=arguments.model)
    if size.k is None or size.k == chosen.k:
        return chosen, plan.notes
    whose = "is fixed" if size.policy == "fixed" else f"is the median of {size.reports} reports"
    note = f"K is {size.k:,}, which {whose}; alone this file would have {chosen.k:,}"
    return plan.support(size.k), (*plan.notes, note)


def _put(client: Client, arguments: argparse.Namespace, value: Content) -> ModelInfo:
    space, model, tags = arguments.space, arguments.model, arguments.tag
    if isinstance(value, Subspace):
        return client.subspaces.put(space, model, value, tags=tags)
    if isinstance(value, Support):
        return client.put_support(space, model, value, tags=tags, progress=True)
    return client.put_signature(space, model, value, tags=tags, progress=True)


def _metadata(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of the model that the command line sets, checked before anything is sent.

    Raises:
        InvalidName, InvalidParameter: one of them is malformed.
    """
    given: dict[str, Any] = {}
    if arguments.base_model is not None:
        given["base_model"] = check_model_name(arguments.base_model, field="--base-model")
    if arguments.source is not None:
        given["source"] = arguments.source
    if arguments.attribute is not None:
        given["attributes"] = dict(map(_attribute, arguments.attribute))
    return given


def _attribute(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``; the value is JSON if it can be read as such, otherwise a text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidParameter(f"--attribute {text}: write KEY=VALUE, such as epochs=3")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _describe(client: Client, info: ModelInfo, given: Mapping[str, Any]) -> ModelInfo:
    """The model with these fields; if they differ, another request sets them."""
    if all(getattr(info, name) == value for name, value in given.items()):
        return info
    return client.models.update(info.space, info.model, **given)


def _query(client: Client, arguments: argparse.Namespace) -> tuple[Query, tuple[str, ...]]:
    """The subject of a search: a stored model, or a file as the space has its models."""
    if arguments.file is None:
        refuse_selection(arguments)
        name: str = arguments.model
        return name, ()
    check_options(arguments, arguments.file)
    space = client.spaces.get(arguments.space)
    source = open_source(arguments, arguments.file, space)
    if not isinstance(source, Checkpoint):
        return source, unchecked_note(arguments.file, source, space)
    plan = plan_of(arguments, source, space)
    k = None if chosen_way(arguments) else client.spaces.support_size(space.name).k
    return plan.support(k), plan.notes


def _signed(support: Support, space: SpaceInfo) -> Signature:
    """The signature with the parameters of the space, made here so that the indices stay here."""
    spec = space.signature
    return support.signature(num_perm=spec.num_perm, seed=spec.seed, scheme=spec.scheme)


def _inspect_support(support: Support, size: int) -> Answer:
    return Answer(
        text=pairs(
            {
                "support": f"{support.k:,} of {support.num_parameters:,} parameters "
                f"({support.density:.2%})",
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
            "bytes": size,
            "digest": support.digest,
            **_origin_rows(support.origin),
        },
    )


def _origin_rows(origin: Origin | None) -> dict[str, str]:
    """What is known of where a support comes from."""
    if origin is None or origin.importance is None:
        return {}
    return {"importance": str(origin.importance)}


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


def _inspect_checkpoint(checkpoint: Checkpoint) -> Answer:
    dtypes = ", ".join(f"{dtype} {count:,}" for dtype, count in checkpoint.dtypes.items())
    rows = [(t.name, t.dtype, str(list(t.shape)), f"{t.size:,}") for t in checkpoint.tensors]
    summary = {
        "checkpoint": f"{checkpoint.num_parameters:,} parameters in "
        f"{counted(len(checkpoint.tensors), 'tensor')}",
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
