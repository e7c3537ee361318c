"""Processes that put, remove and find fingerprints of one tenant, while they are killed.

``python -m tests.soak.fingerprints.finding [--minutes 5] [--processes 3] [--postgres]``. Each
answer is compared with one that is computed from all rows of its own transaction. Meanwhile
processes are killed, bytes of the index are changed, its files are cut, its folder is deleted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np

from app.bootstrap import open_services
from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Keys
from app.fingerprints.finding_keys import coarse_end
from app.infra.deadlines import NEVER
from app.infra.errors import FingerprintNotFound, Unavailable
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.comparison import MODEL_LIMIT, chance
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.tensors import LinesOfTensor
from tests.app.fingerprints.finding.made_hub import keys
from tests.support.app.fingerprints import StoredFingerprints
from tests.support.app.harness import settings_of
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.postgres import postgres_server

__all__ = ["main"]

_FAMILIES, _NAMES = 6, 400
_KEYS, _SCALE, _LENGTH = 300, 4, 1000
_CONTEXT = multiprocessing.get_context("spawn")


def member(family: int, seed: int) -> Fingerprint:
    """A model with a part of its family's keys, and its own."""
    base = keys(np.random.default_rng(family), _KEYS, _SCALE)
    draw = np.random.default_rng([family, seed])
    kept = base[draw.random(base.size) < draw.uniform(0.2, 0.95)]
    held = np.union1d(kept, keys(draw, _KEYS - kept.size, _SCALE))
    return made(held)


def made(held: Keys) -> Fingerprint:
    """A valid fingerprint of keys, in one tensor."""
    rows = _KEYS * _SCALE
    tensor = LinesOfTensor(("t",), (rows, _LENGTH), {_LENGTH: rows}, None, bytes(128))
    owners, lengths = np.zeros(held.size, np.uint32), np.full(held.size, _LENGTH, np.uint32)
    return Fingerprint(_SCALE, (tensor,), {_LENGTH: rows}, held, owners, lengths)


def work(folder: Path, settings: Settings, seed: int) -> None:
    """Put, remove and find, until killed; write down what was done, and what was wrong."""
    draw = random.Random(seed)
    told = (folder / f"{seed}.told").open("w", buffering=1)
    with open_services(settings, prepared=True) as services:
        stored = StoredFingerprints(services, services[Tenant])
        index = FindingIndex(folder / "finding", tail_entries=40 * _KEYS)
        while True:
            name, family = f"m{draw.randrange(_NAMES)}", draw.randrange(_FAMILIES)
            if draw.random() < 0.15:
                with suppress(FingerprintNotFound):
                    stored.delete(name)
                    told.write("removed\n")
            else:
                stored.put(name, member(family, draw.randrange(10**9)))
                told.write("put\n")
            told.write(_checked(index, stored, member(family, draw.randrange(10**9))) + "\n")


def _checked(index: FindingIndex, stored: StoredFingerprints, asked: Fingerprint) -> str:
    with stored.database.reading() as session:
        feed = TenantFeed(session, stored.tenant.id)
        try:
            found = index.find_by(feed, stored.tenant.id, asked, limit=1000, deadline=NEVER)
        except Unavailable as error:
            return f"unavailable {error}"
        scale, own = coarse_end(asked)
        kin = dict[int, int]()
        for page in feed.changed_since(0):
            for each in page:
                count = np.intersect1d(own, each.keys, assume_unique=True).size
                _, log10_p = chance(count, asked.lines, each.lines, max(scale, 1 << each.scale))
                if log10_p < MODEL_LIMIT:
                    kin[each.id] = count
    named = {each.id: each.keys for each in found.candidates if each.round == 1}
    if found.truncated:  # a key lists 64 holders: counts may be lower, and some kin are not named
        right = named.keys() <= kin.keys() and all(named[id_] <= kin[id_] for id_ in named)
    else:
        right = named == kin
    if right:
        return "right"
    here = feed.version, found.truncated, found.common
    return f"wrong at {here}: {named.items() - kin.items()} for {kin.items() - named.items()}"


@contextmanager
def _stores(postgres: bool) -> Iterator[tuple[Path, Backend]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelkin-soak-")))
        if not postgres:
            yield folder, SQLITE
            return
        yield folder, PostgresBackend(stack.enter_context(postgres_server()))


def _harm(folder: Path, draw: random.Random) -> str:
    """Delete, cut or change something of the index."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    if not files or draw.random() < 0.1:
        shutil.rmtree(folder, ignore_errors=True)
        return "folder deleted"
    path = draw.choice(files)
    try:
        size = path.stat().st_size
        if draw.random() < 0.3:
            os.truncate(path, draw.randrange(size + 1))
            return "file cut"
        with path.open("r+b") as file:
            file.seek(draw.randrange(max(1, size)))
            file.write(bytes([draw.randrange(256)]))
    except OSError:  # it has just been replaced
        return "nothing"
    return "byte changed"


def main() -> int:
    """Run, print what happened, and return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, done = random.Random(options.seed), Counter[str]()
    with _stores(options.postgres) as (folder, backend):
        settings = settings_of(folder, backend)
        with open_services(settings):
            pass
        running, numbers = list[SpawnProcess](), 0
        end, next_harm = time.monotonic() + 60 * options.minutes, time.monotonic() + 20
        while time.monotonic() < end:
            while len(running) < options.processes:
                numbers += 1
                arguments = folder, settings, 1000 * options.seed + numbers
                running.append(_CONTEXT.Process(target=work, args=arguments))
                running[-1].start()
            if time.monotonic() > next_harm:
                next_harm += draw.uniform(1, 6)
                if draw.random() < 0.3:
                    victim = running.pop(draw.randrange(len(running)))
                    victim.kill()
                    victim.join()
                    done["killed"] += 1
                else:
                    done[_harm(folder / "finding", draw)] += 1
            done["died"] += sum(not each.is_alive() for each in running)
            running = [each for each in running if each.is_alive()]
            time.sleep(0.1)
        for each in running:
            each.kill()
            each.join()
        lines = [line for path in folder.glob("*.told") for line in path.read_text().splitlines()]
    done.update(line.split(" ", 1)[0] for line in lines if line)
    print(dict(done))
    wrong = [line for line in lines if line.startswith("wrong")]
    print(*wrong[:3], sep="\n")
    return bool(wrong or done["died"])


if __name__ == "__main__":
    raise SystemExit(main())
