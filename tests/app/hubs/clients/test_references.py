"""Names of bases as publishers write them: what a hub is asked for, and what is another place."""

from __future__ import annotations

import pytest

from app.hubs.clients.references import huggingface_reference, mlflow_reference
from app.infra.errors import HubNotFound

HUB, REGISTRY = "https://hub.example:8443", "http://registry.example:5000"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("org/base", ("org/base", None)),
        ("gpt2", ("gpt2", None)),
        (" org/base \n", ("org/base", None)),
        ("org/base@v1.0", ("org/base", "v1.0")),
        ("org/base@main", ("org/base", None)),
        ("org/base/", ("org/base", None)),
        ("org/base.git", ("org/base", None)),
        ("git@hf.co:org/base", ("org/base", None)),
        ("https://huggingface.co/org/base.git", ("org/base", None)),
        ("/", ("/", None)),
        ("hf://org/base@refs", ("org/base", "refs")),
        ("https://huggingface.co/org/base", ("org/base", None)),
        ("http://www.huggingface.co/org/base/", ("org/base", None)),
        ("huggingface.co/org/base", ("org/base", None)),
        ("HF.co/org/base", ("org/base", None)),
        ("https://huggingface.co/gpt2/tree/main", ("gpt2", None)),
        ("https://huggingface.co/org/base/blob/v2/model.safetensors", ("org/base", "v2")),
        ("https://huggingface.co/org/base/commit/0a1b?x=1#y", ("org/base", "0a1b")),
        ("https://huggingface.co/api/models/org/base", ("org/base", None)),
        ("https://hub.example:8443/org/a%20base", ("org/a base", None)),
        ("https://huggingface.co/org/base/tree/refs%2Fpr%2F1/sub", ("org/base", "refs/pr/1")),
        ("https://huggingface.co/org/base/discussions/3", ("org/base", None)),
        ("huggingface.co/org/base@v1", ("org/base", "v1")),
        ("hub.example:8443/org/base/resolve/main/a/b.gguf", ("org/base", None)),
        ("hf://org/base@v1/a/model.safetensors", ("org/base", "v1")),
        ("hf://models/org/base", ("org/base", None)),
        ("/home/me/base", ("/home/me/base", None)),
        ("@only", ("@only", None)),
        ("", ("", None)),
    ],
)
def test_a_card_of_the_hub(text: str, found: tuple[str, str | None]) -> None:
    """A name, a revision behind "@", or the address of a page of the hub or of a public one."""
    assert found == huggingface_reference(text, HUB)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fraud-base", ("fraud-base", None)),
        ("fraud base", ("fraud base", None)),
        ("fraud-base@7", ("fraud-base", "7")),
        ("fraud-base@champion", ("fraud-base", "champion")),
        ("fraud-base/1", ("fraud-base", "1")),
        ("models:/fraud-base/1", ("fraud-base", "1")),
        ("models:/fraud-base@champion", ("fraud-base", "champion")),
        ("models:/fraud-base", ("fraud-base", None)),
        ("models:/fraud-base/latest", ("fraud-base", None)),
        ("models:/fraud-base/Production", ("fraud-base", "Production")),
        ("models:/fraud%20base/2/", ("fraud base", "2")),
        (f"{REGISTRY}/#/models/fraud%20base/versions/3", ("fraud base", "3")),
        (f"{REGISTRY}/#/models/fraud", ("fraud", None)),
        (f"{REGISTRY}/#/models/fraud/versions/3?workspace=a", ("fraud", "3")),
        ("org/base", ("org/base", None)),
        ("", ("", None)),
    ],
)
def test_a_tag_of_a_registry(text: str, found: tuple[str, str | None]) -> None:
    """A name with its version or alias, as it is, as MLflow's URI, or as the address of a page."""
    assert found == mlflow_reference(text, REGISTRY)


@pytest.mark.parametrize(
    "text",
    ["https://other.example/org/base", "ftp://huggingface.co/x", "s3://bucket/x", "http://[/x"],
)
def test_an_address_of_another_place(text: str) -> None:
    """Neither hub can be asked for it, and the refusal says that it is an address."""
    for read, base in ((huggingface_reference, HUB), (mlflow_reference, REGISTRY)):
        with pytest.raises(HubNotFound, match="is an address of another place than"):
            read(text, base)


@pytest.mark.parametrize("kind", ["datasets", "spaces"])
def test_an_address_of_no_model(kind: str) -> None:
    """The address of a data set or an application is refused, and makes no name."""
    with pytest.raises(HubNotFound, match="is the address of no model"):
        huggingface_reference(f"https://huggingface.co/{kind}/org/base", HUB)


def test_a_logged_model_is_no_version() -> None:
    """A base is a registered model, so the id of a logged one says what to write."""
    with pytest.raises(HubNotFound, match="name@version"):
        mlflow_reference("models:/m-0123456789abcdef", REGISTRY)
