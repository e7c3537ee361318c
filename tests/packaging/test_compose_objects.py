"""compose.objects.yaml: machines behind a proxy that share no disk, as far as no container runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.setting_messages import unknown_variables
from app.settings import Settings
from tests.packaging.image import Image, first_lines, read_compose, sh, write_docker
from tests.support.declared_problems import OPERATIONS
from tests.support.servers.s3_server import S3

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CADDYFILE = ROOT / "docs/recipes/Caddyfile"
MACHINES = "first", "second", "workers"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The services after the first lines but the build, by name, with all variables replaced."""
    folder = tmp_path_factory.mktemp("objects")
    for file in ("compose.yaml", "compose.objects.yaml"):
        shutil.copy(ROOT / file, folder)
    (folder / ".env").write_text("MODELKIN_INITIAL_KEY=mk_first\n")  # which the image would make
    (folder / "bin").mkdir()
    write_docker(folder / "bin", folder / "state")
    build, _, rest = first_lines(ROOT / "compose.objects.yaml").partition("\n")
    assert build == first_lines(ROOT / "compose.yaml").partition("\n")[0]
    done = sh(rest, folder, folder / "bin")
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = read_compose(folder / "state")["services"]
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_the_settings_are_those_of_a_bucket(
    services: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are valid, and the bucket is the one that its container makes, with its credentials."""
    variables: dict[str, str] = services[name]["environment"]
    assert not unknown_variables(variables)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    settings = Settings(_env_file=None)
    made = services["objects"]["environment"]
    assert f"s3://{made['S3_BUCKET']}/supports" == settings.blob_bucket
    assert {*S3("").variables()} <= {*variables}
    for secret in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert made[secret] == variables[secret]
        assert len(made[secret]) >= 20
    assert len(settings.encryption_key_list[0]) >= 32


@pytest.mark.parametrize("file", ["compose.yaml", "compose.objects.yaml"])
def test_what_is_written_is_in_the_volume(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of the image can write nowhere else."""
    for service in yaml.safe_load((ROOT / file).read_text())["services"].values():
        if service.get("image") != "modelkin":
            continue
        [volume] = service["volumes"]
        mounted = volume.partition(":")[2] or volume
        with monkeypatch.context() as patch:
            for variable, value in service["environment"].items():
                patch.setenv(variable, re.sub(r"\$\{.*?\}", "x" * 32, value))
            settings = Settings(_env_file=None)
        for folder in (settings.blob_dir, settings.sketch_dir, settings.checkpoint_dir):
            assert folder.is_relative_to(mounted), folder


def test_no_disk_is_shared(services: dict[str, Any]) -> None:
    """Each machine has a volume of its own; those of workers have no name, as there are two."""
    volumes = [volume for name in MACHINES for volume in services[name]["volumes"]]
    assert ["first:/var/lib/modelkin", "second:/var/lib/modelkin", "/var/lib/modelkin"] == volumes


def test_servers_are_those_of_the_other_file(services: dict[str, Any]) -> None:
    """Postgres and Redis are taken from compose.yaml, where they have these names.

    What they mount is defined in both files: ``extends`` takes no definitions.
    """
    own = yaml.safe_load((ROOT / "compose.objects.yaml").read_text())
    other = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for name in ("postgres", "redis"):
        assert {"extends": {"file": "compose.yaml", "service": name}} == services[name]
        taken = other["services"][name]
        mounted = {volume.partition(":")[0] for volume in taken.get("volumes", [])}
        assert mounted <= own["volumes"].keys()
        for config in taken.get("configs", []):
            assert other["configs"][config["source"]] == own["configs"][config["source"]]


def test_the_proxy_asks_the_services(services: dict[str, Any]) -> None:
    """It knows both, at the port of the image, and whether they are ready."""
    [mounted] = services["proxy"]["volumes"]
    assert CADDYFILE == ROOT / mounted.partition(":")[0]
    text = CADDYFILE.read_text()
    port = Image(ROOT / "Dockerfile", Path("/nowhere")).variables["MODELKIN_PORT"]
    [asked] = re.findall(r"reverse_proxy (.+) {", text)
    assert asked.split() == [f"{n}:{port}" for n in MACHINES if "command" not in services[n]]
    [ready] = re.findall(r"health_uri (\S+)", text)
    assert ready in {operation.path for operation in OPERATIONS.values()}
    assert {"first", "second"} == set(services["proxy"]["depends_on"])


def test_caddy_takes_its_file() -> None:
    """As it is, and as its own formatter would write it."""
    if shutil.which("caddy") is None:
        pytest.skip("caddy is not installed")
    for command in (["adapt", "--adapter", "caddyfile", "--config"], ["fmt", "--diff"]):
        done = subprocess.run(["caddy", *command, str(CADDYFILE)], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
