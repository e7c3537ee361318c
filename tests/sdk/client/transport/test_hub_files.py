"""Downloads of learngenes: to whom a token goes, where redirects may lead, and how much is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from modelkin.client._sync.downloads import download
from modelkin.client._transport.hub_files import known_token
from modelkin.client._transport.learngene_files import PartialFile, examine
from modelkin.core.learngenes.manifest import LearngeneTensor
from modelkin.core.learngenes.references import HttpsFile, HubFile, MlflowFile, Reference
from modelkin.errors import ConnectionFailed, InvalidParameter, LearngeneMismatch
from tests.support.models.learngene_files import COMMIT, gene, manifest_of

DATA = gene()
DIGEST = manifest_of(DATA)["digest"]
HUB = HubFile(repo="org/start", revision=COMMIT, file="gene.safetensors")
OWN = HubFile(repo="org/start", revision=COMMIT, file="g", url="https://hub.lan/")
MLFLOW = MlflowFile(url="http://mlflow.lan", model="m", version="1", path="gene")
HTTPS = HttpsFile(url="https://files.example/gene")

Answer = Callable[[httpx.Request], httpx.Response]


def fetched(
    path: Path, answer: Answer, reference: Reference = HTTPS, token: str | None = None
) -> list[httpx.Request]:
    """The requests of a download that is finished."""
    seen: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    with PartialFile(path, DIGEST, len(DATA)) as partial:
        transport = httpx.MockTransport(note)
        download(reference, partial, token=token, timeout=5, idle_timeout=5, transport=transport)
        partial.finish(examined_tensors(path.parent))
    return seen


def examined_tensors(folder: Path) -> tuple[LearngeneTensor, ...]:
    whole = folder / "known"
    whole.write_bytes(DATA)
    return examine(whole).tensors


def redirecting(*hops: str) -> Answer:
    """Redirects from address to address; the last one has the file."""
    rest = list(hops)

    def answer(request: httpx.Request) -> httpx.Response:
        if rest:
            return httpx.Response(302, headers={"Location": rest.pop(0)})
        return httpx.Response(200, content=DATA)

    return answer


def test_a_file_is_downloaded(tmp_path: Path) -> None:
    """As its bytes are, under its own name, and no other file is left."""
    path = tmp_path / "gene.safetensors"
    (request,) = fetched(path, lambda _: httpx.Response(200, content=DATA))
    assert DATA == path.read_bytes()
    assert ("identity", None) == (
        request.headers["accept-encoding"],
        request.headers.get("authorization"),
    )
    assert {"gene.safetensors", "known"} == {each.name for each in tmp_path.iterdir()}


def test_a_token_goes_to_its_server_alone(tmp_path: Path) -> None:
    """The store that the hub redirects to gets none; back at the hub it is sent again."""
    hops = "https://cdn.example/x", "https://huggingface.co/y"
    asked = fetched(tmp_path / "g", redirecting(*hops), HUB, token="secret")
    assert ["Bearer secret", None, "Bearer secret"] == [
        request.headers.get("authorization") for request in asked
    ]


@pytest.mark.parametrize(
    ("reference", "environment", "token"),
    [
        (HUB, {"HF_TOKEN": "hf"}, "hf"),
        (HUB, {"HF_TOKEN": " hf\n"}, "hf"),
        (HUB, {"HF_TOKEN": ""}, None),
        (HUB, {}, None),
        (HUB, {"HF_TOKEN": "hf", "HF_ENDPOINT": "https://hub.lan"}, None),
        (OWN, {"HF_TOKEN": "hf"}, None),
        (OWN, {"HF_TOKEN": "hf", "HF_ENDPOINT": "https://hub.lan"}, "hf"),
        (MLFLOW, {"MLFLOW_TRACKING_TOKEN": "ml"}, None),
        (MLFLOW, {"MLFLOW_TRACKING_TOKEN": "ml", "MLFLOW_TRACKING_URI": "http://other"}, None),
        (
            MLFLOW,
            {"MLFLOW_TRACKING_TOKEN": "ml", "MLFLOW_TRACKING_URI": "http://mlflow.lan/"},
            "ml",
        ),
        (HTTPS, {"HF_TOKEN": "hf"}, None),
    ],
)
def test_a_token_of_the_environment_is_for_its_hub(
    monkeypatch: pytest.MonkeyPatch,
    reference: Reference,
    environment: dict[str, str],
    token: str | None,
) -> None:
    """A manifest of a stranger may name any server; none of them gets a token of ours."""
    for name in ("HF_TOKEN", "HF_ENDPOINT", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert token == known_token(reference)


@pytest.mark.parametrize(
    ("reference", "answer", "why"),
    [
        (HTTPS, redirecting("http://files.example/gene"), "off https"),
        (HTTPS, redirecting("file:///etc/passwd"), "off https"),
        (MLFLOW, redirecting("https://a.example/", "http://b.example/"), None),
        (MLFLOW, redirecting("ftp://a.example/"), "off https"),
        (HTTPS, redirecting(*["https://files.example/gene"] * 6), "more than 5 times"),
        (HTTPS, lambda _: httpx.Response(404), "not there any more"),
        (HTTPS, lambda _: httpx.Response(403), "needs a token"),
        (HTTPS, lambda _: httpx.Response(200, content=DATA + b"x"), "more than the"),
        (HTTPS, lambda _: httpx.Response(200, content=DATA[:-1]), "its manifest says"),
        (HTTPS, lambda _: httpx.Response(200, content=gene(1)), "its manifest says"),
        (HTTPS, lambda _: httpx.Response(200, content=b"<html>log in</html>"), "manifest says"),
    ],
)
def test_another_file_is_not_written(
    tmp_path: Path, reference: Reference, answer: Answer, why: str | None
) -> None:
    """What was there stays, and nothing unfinished is left; http may lead to http."""
    path = tmp_path / "gene.safetensors"
    path.write_bytes(b"before")
    if why is None:
        fetched(path, answer, reference)
        return
    with pytest.raises(LearngeneMismatch, match=why):
        fetched(path, answer, reference)
    assert b"before" == path.read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_that_fails_is_not_a_mismatch(tmp_path: Path, status: int) -> None:
    """Later it may have the file; so may one that does not answer."""

    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    for answer in (lambda _: httpx.Response(status), broken):
        with pytest.raises(ConnectionFailed, match=r"files\.example"):
            fetched(tmp_path / "g", answer)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """It is refused before anything is read."""
    with pytest.raises(InvalidParameter, match="ordinary file"):
        PartialFile(tmp_path, DIGEST, len(DATA))
