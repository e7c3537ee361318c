"""What hubs answer is anything at all: it is read, or refused with an error that says why."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.hubs.clients.answers import read_answer
from app.hubs.clients.huggingface import HuggingFace
from app.hubs.clients.mlflow import MLflow
from app.hubs.ingestion.files.checkpoint_files import choose
from modelkin.errors import ModelkinError

_TEXTS = st.sampled_from(
    [
        *(
            "",
            "1",
            "2",
            "READY",
            "org/a",
            "model.safetensors",
            "a/../b.safetensors",
            "\0",
            "\ud800",
        ),
        *("mlflow-artifacts:/0/x", "s3://bucket/x", "models:/m-1", "http://[", "٣", "9" * 30),
    ]
)
_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)


def _object(*names: str, **known: Any) -> Any:
    """An object of fields that are mostly as they should be, or anything, or missing."""
    fields = {name: st.one_of(_TEXTS, _ANYTHING) for name in names}
    required = {
        name: st.sampled_from([strategy] * 30 + [_ANYTHING]).flatmap(lambda chosen: chosen)
        for name, strategy in known.items()
    }
    return st.fixed_dictionaries(required, optional=fields)


def _several(strategy: Any) -> Any:
    return st.lists(strategy, max_size=3)


_NUMBER = st.sampled_from(["1", "2"])
_LABELS = _several(_object("key", "value"))
_VERSION = _object("run_id", status=st.just("READY"), version=_NUMBER, source=_TEXTS, tags=_LABELS)
_MODEL = _object(
    "name",
    latest_versions=st.lists(_VERSION, min_size=1, max_size=2),
    aliases=_several(_object("alias", version=_NUMBER)),
    tags=_LABELS,
)
_FILES = _object("root_uri", files=_several(_object("path", "is_dir", "file_size")))
_REGISTRY = st.tuples(
    _object(registered_model=_MODEL),
    _object(model_version=_VERSION),
    _object(artifact_uri=_TEXTS),
    _FILES,
    _FILES,
).map(list)
_SIBLINGS = _several(_object("rfilename", "size", lfs=_object("sha256", "size", "oid")))
_PARTS = {
    "siblings": _SIBLINGS,
    "tags": _several(_TEXTS),
    "cardData": _object(base_model=st.lists(_TEXTS, max_size=2)),
}
_LISTING = st.lists(_object("id", "sha", **_PARTS), max_size=3)


class Said:
    """Stands for the wire: answers what the test has thought of, one answer after the other."""

    base, host, authorized = "http://hub", "hub", False

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def json(self, _: str, form: type[Any], *__: Any) -> tuple[Any, httpx.Headers, str]:
        answer = json.dumps(self._answers.pop(0) if self._answers else {}).encode()
        return read_answer(answer, form, "it answers", "/"), httpx.Headers(), self.base

    def next_page(self, *_: Any) -> None:
        """There is one."""


@pytest.mark.slow
@settings(max_examples=150)
@given(_REGISTRY, _several(_MODEL))
def test_no_answer_of_a_registry_is_a_bug(answers: list[Any], models: list[Any]) -> None:
    """A look-up or a listing ends, and fails with an error of ours if it does."""
    with suppress(ModelkinError):
        revision = MLflow(_said(answers)).look_up("a")
        _check(*revision.tags, revision.address, *revision.base_models)
        choose(revision.files, revision.name)
    for model in MLflow(_said([{"registered_models": models}])).models({}):
        _check(model.name, model.revision or "", *model.tags)


@pytest.mark.slow
@settings(max_examples=150)
@given(_object("private", "disabled", "id", "sha", **_PARTS), _LISTING)
def test_no_answer_of_a_hub_is_a_bug(answer: dict[str, Any], listing: list[Any]) -> None:
    """The same of Hugging Face's: beside a commit everything may be missing or strange."""
    with suppress(ModelkinError):
        revision = HuggingFace(_said([answer])).look_up("org/a")
        _check(*revision.tags, revision.address, *revision.base_models)
        _check(*(file.path for file in revision.files))
        choose(revision.files, revision.name)
    for model in HuggingFace(_said([listing])).models({}):
        _check(model.name, model.revision or "", *model.tags)


def _check(*texts: str) -> None:
    """They can be stored."""
    for text in texts:
        text.encode()
        assert "\0" not in text


def _said(answers: list[Any]) -> Any:
    return Said(list(answers))
