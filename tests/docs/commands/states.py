"""What the reader of a page has when its commands begin: files, spaces, models and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
from safetensors.numpy import save_file

import modelkin
from app.kinship.samples.checkpoints import checkpoints, fingerprint_of
from tests.docs.commands.lines import ROOT
from tests.docs.commands.reader import Reader
from tests.docs.pages import blocks, run_python
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, model
from tests.support.backends import SQLITE
from tests.support.explorer.anatomies import wait_for_anatomies
from tests.support.http_space import random_support
from tests.support.models.checkpoints import random_tensors, safetensors

__all__ = ["BEFORE", "everything"]

SHAPES: Final[dict[str, tuple[int, ...]]] = {"embed": (40, 30), "head": (10, 40)}
M: Final = 1000


def nothing(reader: Reader) -> None:
    """A reader who has a service."""


def a_space(name: str) -> Callable[[Reader], None]:
    """A space with three models."""

    def before(reader: Reader) -> None:
        with modelkin.Client() as client:
            client.ensure_space(name, num_parameters=M)
            rng = np.random.default_rng(3)
            for model_name in "abc":
                client.put_support(name, model_name, random_support(rng, M, 100))

    return before


def zoo(reader: Reader) -> None:
    """A folder of checkpoints."""
    for number, name in enumerate(("ants", "bees")):
        (reader.folder / "zoo" / name).mkdir(parents=True)
        content = safetensors(random_tensors(number, SHAPES))
        (reader.folder / "zoo" / name / "model.safetensors").write_bytes(content)


def an_anatomy(reader: Reader) -> None:
    """A base, and what was made of it: both stored, and the latter as a file."""
    base = model(1)
    child = DERIVED["8 bits"](base)
    write(reader.folder / "minilm-int8.safetensors", child)
    fingerprint_of(base).save(reader.folder / "all-minilm-l6.mkfp")
    with modelkin.Client() as client:
        client.fingerprints.put("all-minilm-l6", fingerprint_of(base))
        client.fingerprints.put("org/minilm-int8", fingerprint_of(child))


def bases(reader: Reader) -> None:
    """The files of three bases, two of them with a matrix in common, and the list of them."""
    first = model(1)
    second = model(2) | {"layers.0.q": first["layers.0.q"]}
    write(reader.folder / "minilm-int8.safetensors", DERIVED["8 bits"](first))
    named = {
        "intfloat/multilingual-e5-small": (model(3), "license=mit"),
        "sentence-transformers/all-MiniLM-L6-v2": (first, "license=apache-2.0 date=2021-08-30"),
        "sentence-transformers/paraphrase-MiniLM-L3-v2": (second, "license=apache-2.0"),
    }
    listed = []
    for number, (name, (tensors, facts)) in enumerate(named.items()):
        write(reader.folder / f"{number}.safetensors", tensors)
        listed.append(f"{number}.safetensors name={name} {facts}")
    (reader.folder / "bases.txt").write_text("\n".join(listed))


def a_family(reader: Reader) -> None:
    """A model of twice the layers, that declares its base."""
    base = model(1)
    deeper = base | {f"more.{name}": values for name, values in base.items()}
    with modelkin.Client() as client:
        client.fingerprints.put("acme/small", fingerprint_of(base))
        client.fingerprints.put("acme/solar", fingerprint_of(deeper), base_models=["acme/small"])


def a_child(reader: Reader) -> None:
    """A checkpoint, and a key of the service."""
    write(reader.folder / "org-child.safetensors", model(1))
    reader.instead |= {"$HUB": reader.url, "$KEY": made_key(reader, "--label", "reader")}


def a_source(reader: Reader) -> None:
    """A source of a hub."""
    added = reader.run(
        "modelkin sources add huggingface --space watched --secret-file secret"
        f" --hub-url {reader.hosts} --owner acme --token-file secret --json"
    )
    reader.instead["{id}"] = json.loads(added)["id"]


def a_tenant(reader: Reader) -> None:
    """Two tenants, of which the reader's has a space to publish, and a key to revoke."""
    made_key(reader, "--tenant", "acme")
    revoked = made_key(reader, "--label", "old")
    reader.instead |= {"mk_QwAU1Z3X": revoked[:11], "labs/atlas": "default/atlas"}
    a_space("atlas")(reader)
    support = random_support(np.random.default_rng(4), M, 100)
    (reader.folder / "mine.mksp").write_bytes(support.to_bytes())


def keys_alone(reader: Reader) -> None:
    """A database with one key."""
    reader.set_variable("MODELKIN_DATABASE_URL", SQLITE.migrated_url(reader.folder))
    made_key(reader, "--label", "'training cluster'")


def a_hub(reader: Reader) -> None:
    """The models of a hub, by their fingerprints."""
    with modelkin.Client() as client:
        for earlier in list(client.fingerprints.list()):
            client.fingerprints.delete(earlier.model)
        for each in checkpoints("acme"):
            client.fingerprints.put(
                each.name,
                fingerprint_of(each.weights),
                base_models=each.bases,
                license="mit" if each.name == "acme/coder" else "apache-2.0",
                published_at=each.published_at,
                file_bytes=sum(values.nbytes for values in each.weights.values()),
            )
    with httpx.Client(base_url=reader.url, trust_env=False) as http:
        wait_for_anatomies(http)


def everything(reader: Reader) -> None:
    """What sentences name: folders of models, spaces, a source, samples, and fingerprints."""
    zoo(reader)
    a_source(reader)
    a_space("acme-models")(reader)
    support = random_support(np.random.default_rng(5), M, 100)
    with modelkin.Client() as client:
        client.put_support("acme-models", "acme/base", support)
        client.clusterings.create("acme-models")
        for each in checkpoints("labs"):
            if each.name in {"labs/base", "labs/tuned"}:
                client.fingerprints.put(each.name, fingerprint_of(each.weights))
    for name in ("mine", "theirs", "others"):
        support.save(reader.folder / f"{name}.mksp")
    np.save(reader.folder / "x.npy", np.random.default_rng(6).random((40, 12)))
    reader.set_variable("MODELKIN_SPACE", "acme-models")
    reader.instead |= {
        "SOURCE": reader.instead["{id}"],
        "URL": f"{reader.hosts}/alerts",
        "https://huggingface.co": reader.hosts,
        "--token-file token": "--token-file secret",
        "FOLDER": "zoo",
        "FILE": "mine.mksp",
        "MODEL": "labs/tuned",
        "acme/birds": "acme/base",
        "--space NAME": "--space acme-models",
        "--space SPACE": "--space acme-models",
        "--space tour": "--space acme-models",
    }


def clinics(reader: Reader) -> None:
    """What the page's Python does before it asks: the clinics, and their supports in a space."""
    page = (ROOT / "docs" / "federation.md").read_text().partition("## Without Flower")[2]
    names: dict[str, Any] = {}
    for kind, text in blocks(page.partition("Now train in three ways")[0]):
        if kind == "python":
            kept = text.replace('Client(":memory:")', "Client()")  # in the reader's service
            run_python(kept, "federation.md", names)


def made_key(reader: Reader, *flags: str) -> str:
    """A new key."""
    shown = reader.run(" ".join(["modelkin serve keys create", *flags]))
    found = re.search(r"mk_\w{49}", shown)
    assert found is not None, shown
    return found[0]


def write(path: Path, tensors: Tensors) -> None:
    """A checkpoint of one file."""
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, path)


BEFORE: Final[dict[str, Callable[[Reader], None]]] = {
    "docs/anatomy.md": an_anatomy,
    "docs/catalogue.md": bases,
    "docs/clustering.md": a_space("digits-cnn"),
    "docs/explorer.md": a_space("digits-cnn"),
    "docs/families.md": a_family,
    "docs/federation.md": clinics,
    "docs/fingerprints.md": a_child,
    "docs/hub-fingerprints.md": a_source,
    "docs/hubs.md": nothing,
    "docs/conventions.md": a_space("digits-cnn"),
    "docs/keys.md": a_tenant,
    "docs/operations.md": keys_alone,
    "docs/reports.md": a_hub,
    "docs/upgrading.md": nothing,
    "docs/watching.md": zoo,
    "docs/webhooks.md": a_space("digits-cnn"),
}
"""The pages whose commands run here, and the state of their readers."""
