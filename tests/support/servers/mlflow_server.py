"""A real ``mlflow server`` on loopback, and the calls of a pipeline to its REST API.

MLflow's own settings for local development allow webhooks to loopback over http.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cryptography.fernet import Fernet

from tests.support.servers.guardian import guard
from tests.support.tiers import needs

_TIMEOUT_S = 90.0
_CACHED_S = 1
"""How long MLflow keeps its list of webhooks here; a minute by default."""
_LOCAL = {
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_CACHE_TTL": str(_CACHED_S),
    "MLFLOW_WEBHOOK_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


class Registry:
    """The server, and the calls of a pipeline."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def call(self, path: str, method: str = "POST", **body: Any) -> dict[str, Any]:
        answer = self.http.request(method, f"/api/2.0/mlflow/{path}", json=body)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def register(self, name: str) -> None:
        """Create a registered model without a version."""
        self.call("registered-models/create", name=name)

    def log_run(self, name: str, files: dict[str, bytes], **tags: str) -> str:
        """Create a version from the logged folder ``model`` of a run; return its number."""
        run = self.call("runs/create", experiment_id="0")["run"]["info"]
        source = f"{run['artifact_uri']}/model"
        self._upload(source, files)
        return self._version(name, source, tags, run_id=run["run_id"])

    def log_named_run(self, name: str, files: dict[str, bytes], **tags: str) -> str:
        """Create a version that names its run, ``runs:/``, as ``MlflowClient`` does."""
        run = self.call("runs/create", experiment_id="0")["run"]["info"]
        self._upload(f"{run['artifact_uri']}/model", files)
        return self._version(name, f"runs:/{run['run_id']}/model", tags, run_id=run["run_id"])

    def log_model(self, name: str, files: dict[str, bytes], **tags: str) -> str:
        """Create a version of a logged model, as MLflow 3 does; return its number."""
        model = self.call("logged-models", experiment_id="0", name="m")["model"]["info"]
        self._upload(model["artifact_uri"], files)
        source, model_id = f"models:/{model['model_id']}", model["model_id"]
        return self._version(name, source, tags, model_id=model_id)

    def webhook(self, url: str, secret: str) -> str:
        """Create a webhook for all events that the service uses, and wait until MLflow knows it."""
        wanted = [
            ("REGISTERED_MODEL", "CREATED"),
            ("MODEL_VERSION", "CREATED"),
            ("MODEL_VERSION_ALIAS", "CREATED"),
            ("MODEL_VERSION_TAG", "SET"),
        ]
        events = [{"entity": entity, "action": action} for entity, action in wanted]
        made = self.call("webhooks", name="kin", url=url, secret=secret, events=events)
        webhook: str = made["webhook"]["webhook_id"]
        time.sleep(1.1 * _CACHED_S)
        return webhook

    def _upload(self, uri: str, files: dict[str, bytes]) -> None:
        root = uri.removeprefix("mlflow-artifacts:/")
        for path, data in files.items():
            url = f"/api/2.0/mlflow-artifacts/artifacts/{root}/{path}"
            assert self.http.put(url, content=data).is_success

    def _version(self, name: str, source: str, tags: dict[str, str], **more: str) -> str:
        tag_list = [{"key": key, "value": value} for key, value in tags.items()]
        made = self.call("model-versions/create", name=name, source=source, tags=tag_list, **more)
        number: str = made["model_version"]["version"]
        return number


@contextmanager
def mlflow_server(folder: Path) -> Iterator[Registry]:
    """Run the server, on SQLite and a folder of artifacts."""
    needs("mlflow")
    guard()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    stores += ["--artifacts-destination", str(folder / "artifacts")]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    key = Fernet.generate_key().decode()
    environment = {**os.environ, **_LOCAL, "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": key}
    log = folder / "mlflow.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, *stores],
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    registry = Registry(f"http://127.0.0.1:{port}")
    try:
        _wait(registry, process, log)
        yield registry
    finally:
        registry.http.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_TIMEOUT_S)


def _wait(registry: Registry, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if registry.http.get("/health").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())
