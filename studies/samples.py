"""The samples of a data set, in the form that a network reads: images, vectors or token ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from demo.data import CLASSES
from demo.planted import images
from studies.loaders import cifar, idx, newsgroups
from studies.loaders.folder import DataError
from studies.networks.small import TOKENS, VOCABULARY
from studies.settings import FILES, Setting

__all__ = ["Samples", "samples_of"]

_LISTED: Final[dict[str, Callable[[Path], tuple[Any, Any]]]] = {
    "fashion-mnist": idx.fashion_mnist,
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
}
_CLASSES: Final = {"cifar100": 100}


@dataclass(frozen=True)
class Samples:
    """All samples of a data set.

    Attributes:
        values: images ``(n, channels, side, side)``, vectors ``(n, d)``, or token ids
            ``(n, length)``; float32, or bytes as in files, or int64 for token ids.
        labels: int64 ``(n,)``.
        classes: how many labels there are.
    """

    values: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]
    classes: int

    @property
    def are_tokens(self) -> bool:
        """Token ids are names, and not to be standardised."""
        return self.values.dtype == np.int64


def samples_of(setting: Setting) -> Samples:
    """The samples of a setting's data, as its network reads them.

    Raises:
        ValueError: no such data.
        DataError: they come as files, and these are missing or damaged.
    """
    if setting.data == "digits":
        digits = load_digits()
        return Samples(digits.images.astype(np.float32)[:, None], digits.target, CLASSES)
    if setting.data == "synthetic":
        drawn, labels = _synthetic(setting)
        return Samples(drawn[:, None], labels, CLASSES)
    if setting.data not in FILES:
        raise ValueError(f"no data called {setting.data!r}")
    if setting.data_dir is None:
        raise DataError(f"{setting.data} comes as files: name their folder with --data-dir")
    found = _of_files(setting.data, setting.data_dir, setting.network == "bert")
    if not setting.samples:
        return found
    order = np.random.default_rng([setting.seed, 4]).permutation(len(found.labels))
    some = order[: _needed(setting, found.classes)]
    return replace(found, values=found.values[some], labels=found.labels[some])


def _needed(setting: Setting, classes: int) -> int:
    """Enough for the clients, beside a fifth for testing and what rounding leaves of each class."""
    return round(1.25 * (setting.samples * setting.clients + 2 * classes))


def _synthetic(setting: Setting) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    if not setting.samples:
        return images("synthetic", setting.seed)
    return images("synthetic", setting.seed, _needed(setting, CLASSES))


@cache
def _of_files(data: str, folder: Path, as_tokens: bool) -> Samples:
    """Read once a run: cells of one data set differ by their seeds."""
    try:
        return _read(data, folder, as_tokens)
    except OSError as error:
        where = error.filename or folder
        raise DataError(f"{where} cannot be read: {error.strerror or error}") from error


def _read(data: str, folder: Path, as_tokens: bool) -> Samples:
    if data == "newsgroups":
        row_of = partial(newsgroups.token_ids, length=TOKENS, vocabulary=VOCABULARY)
        rows, labels, groups = newsgroups.newsgroups(
            folder, row_of if as_tokens else newsgroups.word_vector
        )
        return Samples(rows, labels, len(groups))
    values, labels = _LISTED[data](folder)
    return Samples(values, labels.astype(np.int64), _CLASSES.get(data, CLASSES))
