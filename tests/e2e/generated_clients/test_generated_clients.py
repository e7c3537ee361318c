"""Clients that generators make of the OpenAPI document: they compile, are complete, and work.

They are made by the commands and the file of docs/clients.md, and its program in TypeScript runs in
an empty folder, with the versions that ``npx`` brings. The client that is compiled has programs
that ``package-lock.json`` pins. Both need Node.js, and npm's registry.
"""

from __future__ import annotations

import compileall
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import modelkin
from tests.docs.pages import blocks, marked_blocks
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = DOCS / "openapi.json"
PAGE = (DOCS / "clients.md").read_text()
ADDRESS = "http://localhost:8000"
OPERATIONS = {
    operation["operationId"]
    for item in json.loads(DOCUMENT.read_text())["paths"].values()
    for operation in item.values()
}
PYTHON = """
import json, sys
from client import Client
from client.api.kinship import get_neighbors
from client.api.models import get_model, put_support
from client.api.spaces import create_space
from client.models import PutSupportJsonBody, SpaceIn

with Client(sys.argv[1], raise_on_unexpected_status=True) as client:
    space = "from-python"
    create_space.sync(client=client, body=SpaceIn(name=space, num_parameters=100))
    for model, indices in (("org/a", [1, 2, 3, 4]), ("org/b", [3, 4, 5, 6])):
        body = PutSupportJsonBody(indices)
        put_support.sync(space, model, client=client, body=body)
    near = get_neighbors.sync(space, client=client, model="org/a")
    missing = get_model.sync(space, "org/missing", client=client)
print(json.dumps({
    "neighbors": [[item.model, item.similarity] for item in near.items],
    "code": missing.code,
}))
"""
ANSWER = {"neighbors": [["org/b", 0.5]], "code": "model_not_found"}


def shown(kind: str) -> str:
    """The block of a kind on the page."""
    [text] = [text for each, text in blocks(PAGE) if each == kind]
    return text


def options_of(generator: str) -> list[str]:
    """The options of the page's command, but for the address of the document."""
    [command] = [text for text in marked_blocks(PAGE) if generator in text]
    words = shlex.split(command.partition(generator)[2].replace("\\\n", " "))
    place = words.index(f"{ADDRESS}/openapi.json")
    return words[: place - 1] + words[place + 1 :]


def run(*command: str | Path, folder: Path) -> str:
    """What a command prints; its messages where it fails."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def python_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package ``client``, as ``openapi-python-client`` writes it."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "python.yaml").write_text(f"{shown('yaml')}post_hooks: []\n")  # it is not formatted
    verb, *options = options_of("openapi-python-client ")
    options += ["--path", str(DOCUMENT), "--meta", "none", "--output-path", "client"]
    run(sys.executable, "-m", "openapi_python_client", verb, *options, folder=folder)
    return folder


@pytest.fixture(scope="module")
def typescript_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled client in TypeScript, and of two programs that use it."""
    folder = tmp_path_factory.mktemp("typescript")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs Node.js with npm")
    for name in ("package.json", "package-lock.json", "tsconfig.json", "example.ts"):
        shutil.copy(HERE / name, folder)
    run(npm, "ci", "--no-fund", "--no-audit", folder=folder)
    programs = folder / "node_modules" / ".bin"
    options = [*options_of(" openapi-ts "), "-i", str(DOCUMENT), "--silent"]
    run(programs / "openapi-ts", *options, folder=folder)
    run(programs / "tsc", "-p", ".", folder=folder)
    return folder


def test_the_python_client_compiles_and_has_every_operation(python_client: Path) -> None:
    """Each operation is a module that compiles, those with bodies of bytes among them."""
    package = python_client / "client"
    assert compileall.compile_dir(package, quiet=1)
    found = {path.stem for path in (package / "api").glob("*/*.py")} - {"__init__"}
    assert OPERATIONS == found


def test_the_python_client_works(python_client: Path, sqlite_server: Server) -> None:
    """It creates a space, stores supports, finds a neighbour, and reads a problem."""
    printed = run(sys.executable, "-c", PYTHON, sqlite_server.url, folder=python_client)
    assert json.loads(printed) == ANSWER


@pytest.mark.long
def test_the_typescript_client_compiles_and_has_every_operation(typescript_client: Path) -> None:
    """Each operation is an exported function; the compiler accepts all of it, and its use."""
    text = (typescript_client / "client" / "sdk.gen.ts").read_text()
    found = set(re.findall(r"^export const (\w+) =", text, re.MULTILINE))
    assert {camel(name) for name in OPERATIONS} == found


def test_the_typescript_client_works(typescript_client: Path, sqlite_server: Server) -> None:
    """The same as in Python, in one program."""
    printed = run("node", "built/example.js", sqlite_server.url, folder=typescript_client)
    assert json.loads(printed) == ANSWER


def test_the_page_works_in_an_empty_folder(tmp_path: Path, sqlite_server: Server) -> None:
    """Its commands make a client that its program asks for neighbours, without any settings."""
    if shutil.which("npx") is None:
        pytest.skip("needs Node.js with npx")
    support = modelkin.Support.from_indices(range(9), 100)
    with modelkin.Client(sqlite_server.url) as client:
        client.ensure_space("digits-cnn", num_parameters=100)
        for name in ("digits/client-16", "digits/client-17"):
            client.put_support("digits-cnn", name, support)
    (tmp_path / "near.ts").write_text(shown("ts").replace(ADDRESS, sqlite_server.url))
    printed = ""
    for commands in marked_blocks(PAGE):
        if "npx" in commands:
            there = commands.replace(ADDRESS, sqlite_server.url)
            printed = run("bash", "-ec", there, folder=tmp_path)
    assert "model: 'digits/client-17'" in printed
    assert printed.endswith("] undefined\n")


def test_names_of_schemas_are_those_of_no_programming_language() -> None:
    """Names are plain words, and no two schemas have the same title."""
    schemas: dict[str, Any] = json.loads(DOCUMENT.read_text())["components"]["schemas"]
    assert all(re.fullmatch("[A-Z][A-Za-z]+", name) for name in schemas)
    titles = [schema.get("title") for schema in schemas.values()]
    assert len(set(titles)) == len(titles)


def camel(name: str) -> str:
    """``get_space`` as ``getSpace``."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
