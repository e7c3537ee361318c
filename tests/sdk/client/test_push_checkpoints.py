"""Folders of checkpoints pushed by both clients to a real service."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as save_file

from modelkin import (
    CheckpointItem,
    Client,
    InvalidInput,
    NotFoundError,
    PermissionDeniedError,
    PushedCheckpoint,
)
from modelkin.checkpoints import fingerprint, open_checkpoint, select_from_checkpoint, weights_of
from modelkin.core.layout import Layout
from tests.support.blocking_client import Connect
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors, sharded
from tests.support.servers import forkserver
from tests.support.servers.server_process import Server, environment

Push = Callable[..., Any]


@pytest.fixture
def family() -> str:
    """A name that no other test has, and shapes with it, so that no space is another's."""
    return uuid.uuid4().hex[:8]


def shapes_of(family: str, **more: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of a family's models."""
    return {f"{family}.{at}.weight": (40, 30) for at in range(3)} | more


def tuned(base: Tensors, seed: int) -> Tensors:
    """Weights near to others."""
    draw = np.random.default_rng(seed)
    return {name: (w + 0.1 * draw.normal(size=w.shape)).astype("f4") for name, w in base.items()}


def save(path: Path, tensors: Tensors, card: str = "") -> None:
    """A file, or a folder with a card."""
    if path.suffix:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(safetensors(tensors))
        return
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(safetensors(tensors))
    (path / "README.md").write_text(f"---\n{card}\n---\n")


@pytest.fixture
def zoo(tmp_path: Path, family: str) -> Path:
    """A base, two fine-tunes of it, one with a larger head, and a stranger."""
    base = random_tensors(0, shapes_of(family, head=(10, 8)))
    wide = {**tuned(base, 2), "head": random_tensors(3, {"head": (20, 8)})["head"]}
    zoo = tmp_path / "zoo"
    save(zoo / "z-base.safetensors", base)
    save(
        zoo / "a-tuned", tuned(base, 1), f"base_model: {family}/z-base\nlicense: mit\ntags: [ants]"
    )
    save(zoo / "b-wide", wide, f"base_model: {family}/z-base")
    save(zoo / "stranger.safetensors", random_tensors(4, {f"{family}.other": (70, 30)}))
    return zoo


@pytest.fixture
def client(connect: Connect, sqlite_server: Server) -> Iterator[Any]:
    """Either client of the shared service."""
    made = connect(sqlite_server.url)
    yield made
    made.close()


@pytest.fixture
def plain(sqlite_server: Server) -> Iterator[Client]:
    with Client(sqlite_server.url) as client:
        yield client


def states(done: Any) -> dict[str, tuple[str, str | None]]:
    """The state and the space of each model, by its name without a prefix."""
    return {each.model.rpartition("/")[2]: (each.state, each.space) for each in done}


def test_a_family_gets_a_space_named_after_its_base(
    client: Any, plain: Client, zoo: Path, family: str
) -> None:
    """Whatever the order of names; what is stored is what each file gives by itself."""
    done = client.push_checkpoints(zoo, prefix=f"{family}/")
    own = f"{family}-z-base"
    assert {
        "a-tuned": ("created", own),
        "b-wide": ("created", own),
        "stranger": ("created", f"{family}-stranger"),
        "z-base": ("created", own),
    } == states(done)
    assert {own: 3, f"{family}-stranger": 1} == done.spaces
    checkpoint = open_checkpoint(zoo / "a-tuned")
    stored = plain.models.get(own, f"{family}/a-tuned")
    assert select_from_checkpoint(checkpoint).digest == stored.digest
    assert (("ants",), f"{family}/z-base") == (stored.tags, stored.base_model)
    assert weights_of(checkpoint).digest == plain.models.weights(own, stored.model).digest
    assert fingerprint(checkpoint) == plain.fingerprints.get(stored.model)
    assert "mit" == plain.fingerprints.info(stored.model).license
    wide = next(each for each in done if each.model.endswith("wide"))
    assert "has shape [20, 8] in it and [10, 8] in the space" in (wide.reason or "")


def test_again_nothing_is_sent(client: Any, plain: Client, zoo: Path, family: str) -> None:
    """All is unchanged, and no version grows; what did change is replaced."""
    first = client.push_checkpoints(zoo, prefix=f"{family}/")
    versions = {name: plain.spaces.get(name).version for name in first.spaces}
    again = client.push_checkpoints(zoo, prefix=f"{family}/")
    assert {"unchanged": 4} == again.counts
    assert versions == {name: plain.spaces.get(name).version for name in again.spaces}
    save(zoo / "stranger.safetensors", random_tensors(5, {f"{family}.other": (70, 30)}))
    changed = client.push_checkpoints(zoo, prefix=f"{family}/")
    assert {"unchanged": 3, "replaced": 1} == changed.counts


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_said_anew_is_sent(
    client: Any, plain: Client, zoo: Path, family: str, tmp_path: Path, kept: bool
) -> None:
    """Another relation in a card, another date in a file, no tags; with a journal, too."""
    card, tuned_name = zoo / "a-tuned" / "README.md", f"{family}/a-tuned"
    push = {"prefix": f"{family}/", **({"resume": tmp_path / "journal"} if kept else {})}
    client.push_checkpoints(zoo, **push)

    def pushed(given: Any) -> dict[str, int]:
        first, again = (client.push_checkpoints(given, **push).counts for _ in range(2))
        assert {"unchanged": sum(first.values())} == again
        return dict(first)

    text = card.read_text()
    for relation in ("finetune", "merge"):
        card.write_text(text.replace("license", f"base_model_relation: {relation}\nlicense"))
        assert {"unchanged": 3, "replaced": 1} == pushed(zoo)
        assert relation == plain.fingerprints.info(tuned_name).base_relation
        assert relation == plain.models.get(f"{family}-z-base", tuned_name).base_relation
    base = zoo / "z-base.safetensors"
    for day in (4, 5):
        dated = {"modelspec.date": f"2026-05-0{day}T10:00:00.250+02:00"}
        base.write_bytes(save_file(random_tensors(0, shapes_of(family, head=(10, 8))), dated))
        assert {"unchanged": 3, "replaced": 1} == pushed(zoo)
        published = plain.fingerprints.info(f"{family}/z-base").published_at
        assert published is not None
        assert day == published.day
    none: list[str] = []
    for tags in (None, none):
        before = plain.models.get(f"{family}-z-base", tuned_name).tags
        assert ("ants",) == before
        counts = pushed([CheckpointItem(zoo / "a-tuned", tuned_name, tags=tags)])
        assert {"unchanged" if tags is None else "replaced": 1} == counts
    assert () == plain.models.get(f"{family}-z-base", tuned_name).tags


def test_a_dry_run_sends_nothing(client: Any, plain: Client, zoo: Path, family: str) -> None:
    """It says what would go where, and then that happens."""
    planned = client.push_checkpoints(zoo, prefix=f"{family}/", dry_run=True)
    assert {"planned": 4} == planned.counts
    with pytest.raises(NotFoundError):
        plain.spaces.get(f"{family}-z-base")
    done = client.push_checkpoints(zoo, prefix=f"{family}/")
    where = {each.model: (each.space, each.new_space) for each in planned}
    assert where == {each.model: (each.space, each.new_space) for each in done}


def test_a_dry_run_says_what_is_not_compared(client: Any, zoo: Path, family: str) -> None:
    """The tensors that a model does not share with its space, as a push does."""
    head = {**shapes_of(family), "head.weight": (6, 8)}
    (zoo / "z-head.safetensors").write_bytes(safetensors(random_tensors(5, head)))
    planned = client.push_checkpoints(zoo, prefix=f"{family}/", dry_run=True)
    done = client.push_checkpoints(zoo, prefix=f"{family}/")
    why = {each.model: each.reason for each in planned if each.reason}
    assert "'head.weight'" in why[f"{family}/z-head"]
    assert why == {each.model: each.reason for each in done if each.reason}


def test_one_bad_file_does_not_stop_the_others(
    client: Any, zoo: Path, family: str, tmp_path: Path
) -> None:
    """Cut, empty, not finite and of shards that are missing: each fails with its reason."""
    whole = safetensors(random_tensors(0, shapes_of(family)))
    broken = random_tensors(0, shapes_of(family))
    broken[f"{family}.0.weight"][0, 0] = np.nan
    lacking = sharded(random_tensors(0))
    del lacking["model-00001-of-00002.safetensors"]
    (zoo / "lacking").mkdir()
    for name, data in lacking.items():
        (zoo / "lacking" / name).write_bytes(data)
    (zoo / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (zoo / "empty.safetensors").write_bytes(b"")
    (zoo / "nan.safetensors").write_bytes(safetensors(broken))
    seen: list[PushedCheckpoint] = []
    done = client.push_checkpoints(zoo, prefix=f"{family}/", on_result=seen.append)
    assert {"failed": 4, "created": 4} == done.counts
    assert ["cut", "empty", "lacking", "nan"] == [Path(each.path).stem for each in done.failed]
    assert all(each.reason for each in done.failed)
    assert sorted(map(repr, done)) == sorted(map(repr, seen))
    assert "failed" in repr(done)


def test_a_link_out_of_an_index_is_refused(
    client: Any, zoo: Path, family: str, tmp_path: Path
) -> None:
    """A file that lies elsewhere is not read, whatever an index of the folder names."""
    shards = sharded(random_tensors(0, shapes_of(family)))
    (zoo / "linked").mkdir()
    for name, data in shards.items():
        (tmp_path / name).write_bytes(data)
        if name.endswith(".json"):
            (zoo / "linked" / name).write_bytes(data)
        else:
            (zoo / "linked" / name).symlink_to(tmp_path / name)
    [failed] = client.push_checkpoints(zoo, prefix=f"{family}/", dry_run=True).failed
    assert "leads out of the folder" in (failed.reason or "")


def test_a_journal_spares_the_reading(
    client: Any, plain: Client, zoo: Path, family: str, tmp_path: Path
) -> None:
    """Files that are as they were are not read again, unless their space was made anew."""
    journal = tmp_path / "journal"
    push = {"prefix": f"{family}/", "resume": journal}
    client.push_checkpoints(zoo, **push)
    again = client.push_checkpoints(zoo, **push)
    assert {"as an earlier run stored it"} == {each.reason for each in again}
    plain.spaces.delete(f"{family}-stranger")
    anew = client.push_checkpoints(zoo, **push)
    assert {"unchanged": 3, "created": 1} == anew.counts


def test_adapters_of_one_base_share_a_space(client: Any, family: str, tmp_path: Path) -> None:
    """They are apart from those of another base, and from whole models."""
    for name, base in (("one", "x"), ("two", "x"), ("three", "y")):
        folder = tmp_path / "loras" / name
        folder.mkdir(parents=True)
        factors: dict[str, tuple[int, ...]] = {"lora_A": (2, 30), "lora_B": (40, 2)}
        stem = f"base_model.model.{family}.q_proj"
        tensors = {f"{stem}.{factor}.weight": shape for factor, shape in factors.items()}
        drawn = random_tensors(len(name), tensors)
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
        (folder / "adapter_model.safetensors").write_bytes(safetensors(drawn))
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "README.md").write_text(f"---\nbase_model: {family}/{base}\n---\n")
    first = client.push_checkpoints(tmp_path / "loras", prefix=f"{family}/")
    again = client.push_checkpoints(tmp_path / "loras", prefix=f"{family}/")
    expected = {"one": f"{family}-x-lora", "two": f"{family}-x-lora", "three": f"{family}-y-lora"}
    assert expected == {name: space for name, (_, space) in states(first).items()}
    assert expected == {name: space for name, (_, space) in states(again).items()}
    assert {"unchanged": 3} == again.counts


def test_the_space_of_the_declared_base_is_chosen(
    client: Any, plain: Client, family: str, tmp_path: Path
) -> None:
    """Among spaces of the same tensors: the one that holds the base, else the oldest."""
    base = random_tensors(0, shapes_of(family))
    layout = Layout.of((name, w.shape) for name, w in sorted(base.items()))
    for name in ("old", "new"):
        plain.ensure_space(f"{family}-{name}", layout=layout, importance="weight")
    save(tmp_path / "m" / "base.safetensors", base)
    client.push_checkpoints(
        [CheckpointItem(tmp_path / "m" / "base.safetensors", f"{family}/base")],
        space=f"{family}-new",
    )
    save(tmp_path / "zoo" / "tuned.safetensors", tuned(base, 1))
    save(tmp_path / "zoo" / "alone.safetensors", tuned(base, 2))
    manifest = tmp_path / "m.csv"
    manifest.write_text(f"path,base\ntuned,{family}/base\nalone,\n")
    done = client.push_checkpoints(tmp_path / "zoo", prefix=f"{family}/", manifest=manifest)
    assert {
        "tuned": ("created", f"{family}-new"),
        "alone": ("created", f"{family}-old"),
    } == states(done)


def test_a_wrong_declaration_names_no_space(client: Any, family: str, tmp_path: Path) -> None:
    """Neither beside a base of the folder, nor where the declared base is in another space."""
    zoo, wide = tmp_path / "zoo", random_tensors(0, {f"{family}.w": (90, 30)})
    base = random_tensors(1, shapes_of(family))
    save(zoo / "a-lie", tuned(base, 2), f"base_model: {family}/llama")
    save(zoo / "llama.safetensors", wide)
    save(zoo / "tuned", tuned(base, 3), f"base_model: {family}/vega")
    save(zoo / "vega.safetensors", base)
    vega = ("created", f"{family}-vega")
    expected = {"a-lie": vega, "llama": ("created", f"{family}-llama"), "tuned": vega, "vega": vega}
    assert expected == states(client.push_checkpoints(zoo, prefix=f"{family}/"))
    save(
        tmp_path / "more" / "lie",
        random_tensors(4, {f"{family}.v": (9, 7)}),
        f"base_model: {family}/llama",
    )
    [alone] = client.push_checkpoints(tmp_path / "more", prefix=f"{family}/more-")
    assert f"{family}-more-lie" == alone.space


def test_a_named_space(client: Any, plain: Client, zoo: Path, family: str) -> None:
    """It has to exist or may be made; what has other tensors fails, and the others go there."""
    name = f"{family}-named"
    with pytest.raises(NotFoundError):
        client.push_checkpoints(zoo, space=name, prefix=f"{family}/")
    done = client.push_checkpoints(
        zoo, space=name, prefix=f"{family}/", create=True, exclude=["head"], tags=["all"]
    )
    assert {"created": 3, "failed": 1} == done.counts
    assert ["stranger"] == [each.model.rpartition("/")[2] for each in done.failed]
    assert ("head",) == plain.spaces.get(name).exclude
    assert ("all", "ants") == plain.models.get(name, f"{family}/a-tuned").tags
    blinded = f"{family}-data"
    plain.ensure_space(blinded, kind="subspaces", num_parameters=9)
    with pytest.raises(InvalidInput, match="data subspaces"):
        client.push_checkpoints(zoo, space=blinded, prefix=f"{family}/")


def test_a_space_that_fixes_k(client: Any, plain: Client, zoo: Path, family: str) -> None:
    """Its models have that K."""
    layout = open_checkpoint(zoo / "z-base.safetensors").layout
    name = f"{family}-fixed"
    plain.ensure_space(name, layout=layout, importance="weight", support_size=123)
    client.push_checkpoints([zoo / "z-base.safetensors"], prefix=f"{family}/", space=name)
    assert 123 == plain.models.get(name, f"{family}/z-base").support_size


def test_two_runs_at_once_agree(sqlite_server: Server, zoo: Path, family: str) -> None:
    """Both end well, and the models are there once, in one space each."""

    def push(_: int) -> Any:
        with Client(sqlite_server.url) as client:
            return client.push_checkpoints(zoo, prefix=f"{family}/")

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(push, range(2))
    assert {} == {each.model: each.reason for each in (*one.failed, *two.failed)}
    assert one.spaces == two.spaces
    with Client(sqlite_server.url) as client:
        assert 3 == client.spaces.get(f"{family}-z-base").models


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required").start()
    yield running
    assert 0 == running.stop()


def operate(server: Server, *arguments: str) -> str:
    """What a command of the operator prints."""
    done = forkserver.run(
        "app", *arguments, env=environment(MODELKIN_DATABASE_URL=server.database_url)
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def test_a_key_that_may_only_read(connect: Connect, locked: Server, zoo: Path, family: str) -> None:
    """It may plan, and is refused at the first model, with the scope; nothing is left behind."""
    key = operate(locked, "keys", "create", f"--tenant=r-{family}", "--scope=read")
    client = connect(locked.url, key)
    assert {"planned": 4} == client.push_checkpoints(zoo, prefix=f"{family}/", dry_run=True).counts
    with pytest.raises(PermissionDeniedError, match="write"):
        client.push_checkpoints(zoo, prefix=f"{family}/")
    assert [] == list(client.spaces.list())
    client.close()


def test_a_key_that_may_only_write(
    connect: Connect, locked: Server, zoo: Path, family: str
) -> None:
    """It is told that a push reads, too, for a space that is found and for one that is named."""
    key = operate(locked, "keys", "create", f"--tenant=w-{family}", "--scope=write")
    client = connect(locked.url, key)
    for space in ("auto", f"{family}-named"):
        with pytest.raises(PermissionDeniedError, match="use a key that may read, too"):
            client.push_checkpoints(zoo, prefix=f"{family}/", space=space, create=True)
    client.close()


def test_a_quota_that_is_reached_in_the_middle(
    connect: Connect, locked: Server, zoo: Path, family: str
) -> None:
    """What found room is stored, the rest says what is lacking, and more room is used later."""
    tenant = f"q-{family}"
    key = operate(locked, "keys", "create", f"--tenant={tenant}")
    operate(locked, "tenants", "set", tenant, "--models=2")
    client = connect(locked.url, key)
    done = client.push_checkpoints(zoo, prefix=f"{family}/")
    assert {"created": 2, "failed": 2} == done.counts
    assert all("model" in (each.reason or "") for each in done.failed)
    operate(locked, "tenants", "set", tenant, "--models=9")
    again = client.push_checkpoints(zoo, prefix=f"{family}/")
    assert {"created": 2, "unchanged": 2} == again.counts
    client.close()
