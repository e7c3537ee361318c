"""Checkpoints read as their space has its models: kind, tensors left out, order, size, blinding."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from modelkin import Blinding, Client, Support, select_support
from modelkin.checkpoints import open_checkpoint
from modelkin.cli import main
from modelkin.client._protocol.uploads.tensor_order import LayoutCache
from modelkin.client._sync.resources.spaces import Spaces
from modelkin.core.importance import Importance
from modelkin.core.selection import rule
from modelkin.core.tensor_order import TensorOrder
from modelkin.errors import PermissionDeniedError
from modelkin.torch import delta_importance, layout_of, weight_importance, weights_digest
from modelkin.types.spaces import SpaceInfo
from tests.sdk.cli.conftest import Run
from tests.sdk.cli.files import random_tensors, save, save_sharded
from tests.support.servers.server_process import Server


class Network(nn.Module):
    """A network whose parameters are not in the order of their names; with running statistics."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Linear(30, 40)
        self.norm = nn.BatchNorm1d(40)
        self.head = nn.Linear(40, 10)


BASE, MODEL = Network(0), Network(1)
KEY = "c0ffee00" * 8
BUFFERS = ("--exclude", "*.running_*")
NOTE = (
    "modelkin: note: 1 tensor of integers or booleans is left out, such as "
    "'norm.num_batches_tracked' (I64)\n"
)


@pytest.fixture
def space() -> str:
    """A name of the test's own."""
    return f"push-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def push(run_here: Run, server: Server, space: str, tmp_path: Path) -> Run:
    """Pushes ``m.safetensors``, or asks with it, in this process."""
    save(tmp_path / "m.safetensors", MODEL.state_dict())
    save(tmp_path / "base.safetensors", BASE.state_dict())
    return lambda *arguments: run_here(*arguments, "--space", space, "--url", server.url)


@pytest.mark.parametrize("first", ["torch", "file"])
def test_one_network_through_torch_and_a_file_is_itself(
    push: Run, client: Client, space: str, first: str
) -> None:
    """S is 1.000 with default settings, whichever of the two makes the space."""
    file = ("push", "m.safetensors", "--model", "file")
    importance = weight_importance(MODEL)
    if first == "torch":
        client.ensure_space(space, layout=layout_of(MODEL), importance="weight")
        client.put_support(space, "torch", select_support(importance))
        done = push(*file, *BUFFERS)
    else:
        done = push(*file, "--create", *BUFFERS)
        client.put_support(space, "torch", select_support(importance))
    assert (0, "") == (done.returncode, done.stderr.replace(NOTE, ""))
    client.put_importance(space, "importance", importance)
    for name in ("torch", "importance"):
        assert 1.0 == client.overlap(space, "file", name).similarity
    asked = push("neighbors", "--file", "m.safetensors", "--json", *BUFFERS)
    found = {item["model"]: item["similarity"] for item in json.loads(asked.stdout)["items"]}
    assert {"file": 1.0, "torch": 1.0, "importance": 1.0} == found
    m = layout_of(MODEL).num_parameters
    assert m // 20 == client.models.get(space, "file").support_size


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 30])
def test_a_push_has_the_support_of_the_file(
    push: Run,
    client: Client,
    space: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int | None,
) -> None:
    """``push`` and ``support`` select the same of a folder of shards, as a source does; also where
    5% would be more than a support has by default.
    """
    if most is not None:
        monkeypatch.setattr(rule, "MAX_DEFAULT_K", most)
    save_sharded(tmp_path / "shards", random_tensors())
    assert 0 == push("push", "shards", "--model", "m", "--create").returncode
    assert 0 == main(("support", "shards", "-o", "m.mksp"))
    expected = Support.load("m.mksp")
    stored = client.models.get(space, "m")
    assert (expected.digest, most or 65) == (stored.digest, stored.support_size)


def test_create_states_the_kind_and_what_is_left_out(
    push: Run, client: Client, space: str, tmp_path: Path
) -> None:
    """The space has both, and later pushes and questions leave the tensors out by themselves."""
    push("push", "m.safetensors", "--model", "m", "--create", *BUFFERS)
    info = client.spaces.get(space)
    assert (Importance.of("weight"), ("*.running_*",)) == (info.importance, info.exclude)
    layout = open_checkpoint(tmp_path / "m.safetensors", ["*.running_*"]).layout
    assert layout == info.layout
    pushed = push("push", "base.safetensors", "--model", "b")
    assert (0, NOTE) == (pushed.returncode, pushed.stderr)
    asked = push("donors", "--file", "m.safetensors")
    said = "modelkin: note: the space leaves out the tensors called '*.running_*'\n"
    assert (0, NOTE + said) == (asked.returncode, asked.stderr)


def test_a_delta_goes_to_the_space_of_its_base(
    push: Run, client: Client, space: str, tmp_path: Path
) -> None:
    """The space names the base by its digest, torch gives the same delta, others are refused."""
    delta = ("push", "m.safetensors", "--base", "base.safetensors", "--model", "file")
    push(*delta, "--create", *BUFFERS)
    digest = weights_digest(BASE)
    assert Importance.of("delta", digest) == client.spaces.get(space).importance
    client.put_support(space, "torch", select_support(delta_importance(MODEL, BASE)))
    assert 1.0 == client.overlap(space, "file", "torch").similarity
    save(tmp_path / "other.safetensors", Network(2).state_dict())
    done = push("push", "m.safetensors", "--base", "other.safetensors", "--model", "x")
    other = weights_digest(Network(2))
    assert (1, "") == (done.returncode, done.stdout)
    assert f"delta against {digest}, and this one is by delta against {other}" in done.stderr
    assert 1 == done.stderr.count("\n")


def test_another_kind_is_refused_in_one_line(push: Run, client: Client, space: str) -> None:
    """Both kinds are named, for a push with --create and for a question alike."""
    client.ensure_space(space, layout=layout_of(MODEL), importance="fisher")
    for command in (
        ("push", "m.safetensors", "--model", "m", "--create", *BUFFERS),
        ("neighbors", "--file", "m.safetensors", *BUFFERS),
    ):
        done = push(*command)
        assert (1, 1) == (done.returncode, done.stderr.count("\n"))
        assert "holds supports by fisher, and this one is by weight" in done.stderr


def test_a_file_is_compared_over_what_the_space_has(
    push: Run, client: Client, space: str, tmp_path: Path
) -> None:
    """Tensors beyond the space's are left out, those that it lacks are gaps; both are named."""
    client.ensure_space(space, layout=layout_of(MODEL), importance="weight")
    more = push("push", "m.safetensors", "--model", "more")
    assert 0 == more.returncode
    both = "'norm.running_mean' [40], 'norm.running_var' [40]"
    assert f"tensors {both} are only in it" in more.stderr
    less = {n: w for n, w in MODEL.state_dict().items() if n not in {"norm.weight", "head.bias"}}
    save(tmp_path / "m.safetensors", less)
    done = push("push", "m.safetensors", "--model", "less", "--exclude", "absent.*", *BUFFERS)
    assert 0 == done.returncode
    assert "it is compared over 97.1% of the space's parameters" in done.stderr
    assert "--exclude: no tensor name of m.safetensors matches 'absent.*'" in done.stderr
    [found] = [item for item in client.neighbors(space, "less") if item.model == "more"]
    assert pytest.approx(1680 / 1730) == found.covered
    assert 50 == client.supports.get(space, "less").gaps.size


def test_too_little_of_a_space_is_refused_by_name(
    push: Run, client: Client, space: str, tmp_path: Path
) -> None:
    """The tensors that differ are named, and what to do, before anything is read."""
    client.ensure_space(space, layout=layout_of(MODEL))
    save(tmp_path / "m.safetensors", {"head.weight": MODEL.head.weight, "x.weight": torch.ones(9)})
    done = push("push", "m.safetensors", "--model", "m", "--create")
    assert (1, "") == (done.returncode, done.stdout)
    assert f"m.safetensors has other tensors than space '{space}'" in done.stderr
    assert "tensor 'x.weight' [9] is only in the file" in done.stderr
    assert "'stem.weight' [40, 30]" in done.stderr
    assert "to one without these tensors, --create --exclude" in done.stderr
    towers = {f"tower.{i}.weight": torch.ones(30, 30) for i in range(9)}
    save(tmp_path / "m.safetensors", MODEL.state_dict() | towers)
    done = push("push", "m.safetensors", "--model", "m")
    assert "leave out the tensors that are its own, --exclude" in done.stderr
    assert all(f"'{name}' [30, 30]" in done.stderr for name in towers)
    helped = push("push", "m.safetensors", "--model", "m", "--exclude", "tower.*")
    assert 0 == helped.returncode
    save(tmp_path / "m.safetensors", {f"y{i}.weight": torch.ones(9) for i in range(9)})
    done = push("push", "m.safetensors", "--model", "m")
    assert "of its own layout, which --create makes, or give --space auto" in done.stderr


@pytest.mark.parametrize(
    ("exclude", "message"),
    [("nothing.*", "no tensor name"), ("*", "no tensor of floats is left: exclude fewer")],
)
def test_patterns_that_leave_out_nothing_or_all(
    push: Run, client: Client, space: str, exclude: str, message: str
) -> None:
    """Each is refused in a line that names the pattern's fault; no space is made."""
    done = push("push", "m.safetensors", "--model", "m", "--create", "--exclude", exclude)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert message in done.stderr
    assert [] == [s for s in client.spaces.list() if s.name == space]


def test_a_list_of_patterns_may_name_tensors_that_the_file_lacks(push: Run, run_here: Run) -> None:
    """One list serves a base and its fine-tunes; a note names what is not there."""
    lists = (*BUFFERS, "--exclude", "v_head.*")
    done = push("push", "m.safetensors", "--model", "m", "--create", *lists)
    assert 0 == done.returncode
    assert "--exclude: no tensor name of m.safetensors matches 'v_head.*'" in done.stderr
    assert 0 == run_here("support", "m.safetensors", "-o", "m", *lists).returncode


def test_a_question_takes_the_size_of_the_space(push: Run, client: Client, space: str) -> None:
    """A file is compared at the K that the space fixes, unless the command line says another."""
    client.ensure_space(space, layout=layout_of(MODEL), importance="weight", support_size=77)
    push("push", "m.safetensors", "--model", "m", *BUFFERS)
    asked = json.loads(push("neighbors", "--file", "m.safetensors", "--json", *BUFFERS).stdout)
    assert [77] == [item["shared_indices"] for item in asked["items"]]
    more = push("neighbors", "--file", "m.safetensors", "--json", "--support-size", "154", *BUFFERS)
    (item,) = json.loads(more.stdout)["items"]
    assert (77, pytest.approx(2 / 3)) == (item["shared_indices"], item["similarity"])


def test_a_key_that_may_only_write_pushes(
    push: Run, client: Client, space: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the space cannot be read, the service compares the stated layout with its own."""
    layout = open_checkpoint(tmp_path / "m.safetensors", ["*.running_*"]).layout
    client.ensure_space(space, layout=layout, importance="weight")

    def forbidden(self: Spaces, name: str) -> SpaceInfo:
        raise PermissionDeniedError(403, "forbidden", "this key lacks the scope read")

    monkeypatch.setattr(Spaces, "get", forbidden)
    monkeypatch.setattr(LayoutCache, "put", lambda self, info: TensorOrder(info.name, None, ()))
    done = push("push", "m.safetensors", "--model", "m", *BUFFERS)
    assert 0 == done.returncode
    assert NOTE in done.stderr
    other = push("push", "m.safetensors", "--model", "m")
    assert (1, 1) == (other.returncode, other.stderr.replace(NOTE, "").count("\n"))
    assert "space_mismatch" in other.stderr


@pytest.mark.parametrize(
    "command", [("push", "m.mksp", "--model", "x"), ("neighbors", "--file", "m.mksp")]
)
def test_a_support_file_is_checked_by_the_origin_beside_it(
    push: Run, run_here: Run, client: Client, space: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Its kind is compared; without the origin, or with another's, a note says what is not."""
    run_here("support", "m.safetensors", "-o", "m.mksp", *BUFFERS)
    assert "importance  weight" in run_here("inspect", "m.mksp").stdout
    client.ensure_space(space, layout=layout_of(MODEL), importance="fisher")
    refused = push(*command)
    assert 1 == refused.returncode
    assert "weight" in refused.stderr
    assert "fisher" in refused.stderr
    beside = tmp_path / "m.mksp.origin.json"
    run_here("support", "base.safetensors", "-o", "base.mksp", *BUFFERS)
    (tmp_path / "base.mksp.origin.json").replace(beside)
    for gone in (False, True):
        if gone:
            beside.unlink()
        done = push(*command)
        assert (0, 1) == (done.returncode, done.stderr.count("\n"))
        assert "m.mksp does not say its kind of importance and its tensor order" in done.stderr
        assert "keep m.mksp.origin.json beside it" in done.stderr


def test_a_support_file_is_put_in_the_order_of_the_space(
    push: Run, run_here: Run, client: Client, space: str
) -> None:
    """The file has its tensors by name, the space as torch has them; they are one network."""
    run_here("support", "m.safetensors", "-o", "m.mksp", *BUFFERS)
    client.ensure_space(space, layout=layout_of(MODEL), importance="weight")
    client.put_support(space, "torch", select_support(weight_importance(MODEL)))
    done = push("push", "m.mksp", "--model", "file")
    assert (0, "") == (done.returncode, done.stderr)
    assert 1.0 == client.overlap(space, "file", "torch").similarity
    (item,) = json.loads(push("neighbors", "--file", "m.mksp", "-k", "1", "--json").stdout)["items"]
    assert 1.0 == item["similarity"]


@pytest.mark.parametrize("command", ["neighbors", "donors"])
@pytest.mark.parametrize(
    "option", [("--fraction", "0.1"), ("--base", "base.safetensors"), ("--exclude", "*")]
)
def test_options_of_a_selection_are_for_a_file(
    push: Run, command: str, option: tuple[str, str]
) -> None:
    """With a stored model they are refused by name, not ignored."""
    done = push(command, "--model", "m", *option)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert f"{option[0]} is for --file CHECKPOINT" in done.stderr


def test_a_base_for_a_space_of_weights_is_to_be_left_out(
    push: Run, client: Client, space: str
) -> None:
    """The message says so, as no other base would do."""
    client.ensure_space(space, layout=layout_of(MODEL), importance="weight")
    base = ("--base", "base.safetensors")
    done = push("push", "m.safetensors", "--model", "m", *base, *BUFFERS)
    assert 1 == done.returncode
    assert "leave --base out" in done.stderr


@pytest.fixture
def keyed(tmp_path: Path) -> nn.Module:
    """A network, and its file ``model.safetensors``; the key in ``key``."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 10))
    save(tmp_path / "model.safetensors", network.state_dict())
    (tmp_path / "key").write_text(KEY + "\n")
    return network


def test_a_checkpoint_is_blinded_before_it_is_sent(
    client: Client, server: Server, keyed: nn.Module, run_here: Run, tmp_path: Path
) -> None:
    """The space knows no tensor, and a member who has the key reads the plain support again."""
    space, key = f"blind-{uuid.uuid4().hex[:8]}", str(tmp_path / "key")
    pushed = ("push", str(tmp_path / "model.safetensors"), "--space", space, "--url", server.url)
    done = run_here(*pushed, "--model", "a", "--create", "--blinding-key", key)
    assert (0, "") == (done.returncode, done.stderr)
    blinding = Blinding(KEY, layout_of(keyed))
    info = client.spaces.get(space)
    assert (blinding.check, None) == (info.blinding, info.layout)
    plain = select_support(weight_importance(keyed), fraction=0.05)
    assert plain == blinding.unblind(client.supports.get(space, "a"))
    done = run_here(*pushed, "--model", "signed", "--signature-only", "--blinding-key", key)
    assert 0 == done.returncode, done.stderr
    assert 1.0 == client.neighbors(space, "a")[0].similarity
    client.clusterings.create(space)
    asked = (str(tmp_path / "model.safetensors"), "--space", space, "--url", server.url, "--json")
    for question in (("assign",), ("neighbors", "--file"), ("donors", "--file")):
        done = run_here(*question, *asked, "--blinding-key", key)
        assert 0 == done.returncode, done.stderr
        assert 1.0 == json.loads(done.stdout)["items"][0]["similarity"]
        done = run_here(*question, *asked)
        assert 1 == done.returncode
        assert "is not blinded: give a support or a checkpoint, and --blinding-key" in done.stderr
    done = run_here("neighbors", "a", *asked[1:], "--blinding-key", key)
    assert "--blinding-key is for --file" in done.stderr


def test_wrong_and_missing_keys_send_nothing(
    client: Client, server: Server, keyed: nn.Module, run_here: Run, tmp_path: Path
) -> None:
    """Another key, no key, a file without one, and what cannot be blinded are errors in a line."""
    space = f"blind-{uuid.uuid4().hex[:8]}"
    client.ensure_space(space, blinding=Blinding(KEY, layout_of(keyed)))
    (tmp_path / "other").write_text("5a" * 32)
    (tmp_path / "words").write_text("correct horse battery staple")
    pushed = (str(tmp_path / "model.safetensors"), "--space", space, "--url", server.url)
    signature = Support.from_indices([1, 2], 9).signature()
    (tmp_path / "own.signature").write_bytes(signature.to_bytes())
    signed = (str(tmp_path / "own.signature"), *pushed[1:])
    for given, key, words in (
        (pushed, "other", "the key or the layout is another"),
        (pushed, None, "--blinding-key FILE"),
        (pushed, "words", "hexadecimal"),
        (pushed, "nowhere", "No such file"),
        (signed, "key", "only supports are blinded"),
    ):
        option = () if key is None else ("--blinding-key", str(tmp_path / key))
        done = run_here("push", *given, "--model", "a", *option)
        assert 1 == done.returncode
        assert words in done.stderr
        assert KEY not in done.stderr
    assert 0 == client.spaces.get(space).models


def test_a_plain_file_for_ranks_is_told_what_it_lacks(
    client: Client, server: Server, run_here: Run, tmp_path: Path
) -> None:
    """In the words of a shell; ordered files pass, and plain ones where S ranks."""
    space, values = f"ranks-{uuid.uuid4().hex[:8]}", np.arange(1.0, 400, dtype=np.float32)
    client.ensure_space(space, num_parameters=values.size, ordered=True)
    where = ("--space", space, "--url", server.url)
    for ordered in (False, True):
        path = str(tmp_path / f"{ordered}.mksp")
        select_support(values, k=40, ordered=ordered).save(path)
        for command in (
            ("push", path, "--model", "a"),
            ("neighbors", "--file", path, "--measure", "ordered"),
        ):
            done = run_here(*command, *where)
            assert int(not ordered) == done.returncode, done.stderr
            said = f"{path} holds a plain support, without the ranks of its indices"
            assert ordered == (said not in done.stderr)
    plain = run_here("neighbors", "--file", str(tmp_path / "False.mksp"), *where)
    assert 0 == plain.returncode, plain.stderr


def test_a_fingerprint_goes_beside_the_support(push: Run, client: Client, space: str) -> None:
    """Under the model's name, with the base that it names; and none where that is asked for."""
    create = ("--create", *BUFFERS)
    push("push", "m.safetensors", "--model", space, "--base-model", "org/base", *create)
    stored = client.fingerprints.info(space)
    assert (("org/base",), "client") == (stored.base_models, stored.stated_by)
    others = {"none": ("--no-fingerprint",), "signed": ("--signature-only",)}
    for name, option in others.items():
        push("push", "m.safetensors", "--model", f"{space}/{name}", *option, *BUFFERS)
    assert [space] == [each.model for each in client.fingerprints.list(prefix=space)]
