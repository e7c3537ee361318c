"""``python -m demo --sharing``: donors average their models for a newcomer, and show none of them.

A newcomer with five examples is stored, and a merge is created of its donors, as the service ranks
and weighs them. Each party runs its own part: the donors seal shards of their weights to each
other, through the service, and the newcomer gets the average and trains from it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demo import story, training
from demo.federation import Federation
from demo.newcomers import EXAMPLES, STEPS
from demo.report import Report
from demo.service import DemoError, Service
from modelkin import Client, Support, select_support
from modelkin.types.merges import Merge, Merged

__all__ = ["run"]

NEWCOMER = 13
MERGE, DONORS, SHARDS = "for-the-newcomer", 8, 4
SECONDS = 120
"""The longest that a state of the merge may take."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def run(service: Service, client: Client, report: Report) -> None:
    """Print the whole story, from donors to what the average is worth."""
    started = time.monotonic()
    torch.set_num_threads(1)
    federation = story.prepare(report)
    supports = story.choose_supports(federation, report)
    samples = training.few_examples(federation.split, EXAMPLES, federation.seed)
    supports[NEWCOMER] = newcomer_support(federation, samples, supports[NEWCOMER].k)
    story.upload(client, federation, supports, report)
    merge = create(client, federation, report)
    models = train(federation, merge, report)
    merged = average(service, client, federation, merge, models)
    show_average(service, merged, models, report)
    show_worth(federation, samples, merged, report)
    report.say(f"\nAll of it took {time.monotonic() - started:.0f} s.")


def newcomer_support(federation: Federation, samples: Integers, k: int) -> Support:
    """The newcomer's support, of its few examples alone."""
    importance = training.importance_of(federation.model, federation.split, samples[NEWCOMER])
    return select_support(importance, k=k)


def create(client: Client, federation: Federation, report: Report) -> Merge:
    """Create a merge of the newcomer's donors, with the weights that the service gives them."""
    name = federation.names[NEWCOMER]
    merge = client.merges.create(
        federation.space, MERGE, donors_of=name, k=DONORS, aggregators=SHARDS, deadline=SECONDS
    )
    report.section(f"Donors: from whom a newcomer with {EXAMPLES} examples may learn")
    ranked = sorted(merge.parties, key=lambda party: -(party.weight or 0))
    report.table(
        f"The newcomer is {name}: {federation.digits(NEWCOMER)}",
        ("donor", "weight ", "its digits"),
        [
            (each.name, f"{each.weight:.3f}", federation.digits(federation.number(each.name)))
            for each in ranked
        ],
    )
    return merge


def train(federation: Federation, merge: Merge, report: Report) -> dict[str, Floats]:
    """Return each donor's weights after training on its own digits alone."""
    found, donors = {}, [party.name for party in merge.parties]
    for donor in report.progress(donors, "Training", str):
        model, number = copy.deepcopy(federation.model), federation.number(donor)
        weights = training.train(model, federation.split, number, federation.seed)
        found[donor] = weights.numpy()
    return found


def average(
    service: Service,
    client: Client,
    federation: Federation,
    merge: Merge,
    models: Mapping[str, Floats],
) -> Merged:
    """Take part as each of the parties, at once; return what the newcomer gets."""

    def take_part(name: str, values: Floats | None) -> Merged:
        with Client(service.url) as own:
            return own.merges.join(federation.space, merge, name, values, timeout=3 * SECONDS)

    newcomer = federation.names[NEWCOMER]
    with ThreadPoolExecutor(len(models) + 1) as parties:
        # The newcomer has no values: a neutral party joins before the last member has.
        last = parties.submit(take_part, newcomer, None)
        wait_for(client, federation, newcomer, last)
        members = [parties.submit(take_part, name, model) for name, model in models.items()]
        digests = {each.result().digest for each in [*members, last]}
    if len(digests) != 1:
        raise DemoError("the parties have different rosters")
    return last.result()


def wait_for(client: Client, federation: Federation, name: str, party: Future[Merged]) -> None:
    """Return once a party has joined; raise the error of a party that failed."""
    while name not in joined_names(client.merges.get(federation.space, MERGE)):
        if party.done():
            party.result()
        time.sleep(0.05)


def joined_names(merge: Merge) -> Sequence[str]:
    return [party.name for party in merge.parties if party.joined]


def show_average(
    service: Service, merged: Merged, models: Mapping[str, Floats], report: Report
) -> None:
    """Show how exact the average is, and what the service could read."""
    weights = {party.name: party.weight or 0.0 for party in merged.merge.parties}
    total = sum(weights[name] for name in merged.members)
    exact = sum(weights[n] / total * models[n].astype(np.float64) for n in merged.members)
    stored = read_store(service.folder)
    report.section(f"The average of {len(merged.members)} models, each seen by its owner alone")
    report.say(
        f"Each donor cut its {len(values_of(merged)):,} weights into {SHARDS} shards, hid them "
        f"under masks that cancel in the sum, and sealed each to the aggregator of its shard. All "
        f"parties logged the roster {merged.digest[:16]}."
    )
    worst = float(np.abs(values_of(merged) - exact).max())
    report.say(f"Largest difference from the average in float64: {worst:.1e}")
    pairs = sum(model.size - 1 for model in models.values())
    report.say(
        f"Pairs of the donors' weights anywhere among the {len(stored):,} bytes of the service's "
        f"store: {count_stretches(stored, models)} of {pairs:,}."
    )


def values_of(merged: Merged) -> Floats:
    assert merged.values is not None, "it was asked for in memory"
    return merged.values


def read_store(folder: Path) -> bytes:
    """Return all that the service has written: database, blobs and log."""
    return b"".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())


def count_stretches(stored: bytes, models: Mapping[str, Floats]) -> int:
    """Count the pairs of consecutive weights, eight bytes each, that occur in ``stored``."""
    words = [model.astype("<f4").view("<u4").astype(np.uint64) for model in models.values()]
    pairs = np.unique(np.concatenate([word[:-1] | word[1:] << np.uint64(32) for word in words]))
    found = np.zeros(pairs.size, np.bool_)
    for offset in range(8):
        count = (len(stored) - offset) // 8
        windows = np.frombuffer(stored, "<u8", max(0, count), offset)
        at = np.searchsorted(pairs, windows).clip(max=pairs.size - 1)
        found[at[pairs[at] == windows]] = True
    return int(found.sum())


def show_worth(federation: Federation, samples: Integers, merged: Merged, report: Report) -> None:
    """The newcomer's accuracy on its own mix of digits, without donors and with them."""
    common = torch.nn.utils.parameters_to_vector(federation.model.parameters()).detach()
    starts = {
        "the weights that all received": common,
        "the average in shards": torch.from_numpy(values_of(merged)),
    }
    rows = [(name, *_accuracies(federation, samples, start)) for name, start in starts.items()]
    report.table(
        f"The newcomer's accuracy on its own mix of digits, after steps on its {EXAMPLES} examples "
        f"from",
        ("", *(f"{steps} steps " for steps in STEPS)),
        rows,
    )


def _accuracies(federation: Federation, samples: Integers, start: Tensor) -> tuple[str, ...]:
    mix, model = federation.split.mixes[NEWCOMER], copy.deepcopy(federation.model)
    found = []
    own = samples[NEWCOMER : NEWCOMER + 1]
    for state in training.train_few(model, start[None], federation.split, own, STEPS):
        by_class = training.accuracy_by_class(model, state[0], federation.split)
        found.append(f"{float(by_class @ mix):.3f}")
    return tuple(found)
