"""Text to train on, and a tokenizer of it: the source code of Python's standard library."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

__all__ = ["MASK", "PAD", "TOKENS", "batch", "save_tokenizer", "transformers"]

transformers: Any = import_module("transformers")
"""Its names are made when they are asked for, so no checker of types knows them."""

TOKENS: Final = 1536
SPECIAL: Final = ("<pad>", "<mask>", "<s>", "</s>")
PAD, MASK = 0, 1
BATCH: Final = (6, 64)
_CHARACTERS: Final = 600_000
"""Of each half of the text."""


@cache
def halves() -> tuple[str, str]:
    """Two texts that have no module in common."""
    paths = sorted(Path(os.__file__).parent.glob("*.py"))
    texts = [path.read_text(errors="replace") for path in paths]
    return "\n".join(texts[::2])[:_CHARACTERS], "\n".join(texts[1::2])[:_CHARACTERS]


def tokenizer(tokens: int = TOKENS) -> Any:
    """A byte-level BPE of the first half; a smaller one has the first tokens of a larger one."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=tokens,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([halves()[0]], trainer)
    pad, mask, begin, end = SPECIAL
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=pad, mask_token=mask, bos_token=begin, eos_token=end
    )


@cache
def _of(tokens: int) -> Any:
    """A tokenizer of this many tokens, made once."""
    if tokens <= TOKENS:
        return tokenizer(tokens)
    larger = tokenizer()
    larger.add_tokens([AddedToken(f"<added {number}>") for number in range(tokens - TOKENS)])
    return larger


def save_tokenizer(folder: Path, tokens: int = TOKENS) -> None:
    """Save the tokenizer of a model with so many tokens into its folder."""
    _of(tokens).save_pretrained(folder)


@cache
def _encoded(half: int, own: Path | None) -> Tensor:
    made = _of(TOKENS) if own is None else transformers.AutoTokenizer.from_pretrained(own)
    return torch.tensor(made(halves()[half], verbose=False)["input_ids"])


def batch(half: int, draw: torch.Generator, own: Path | None = None) -> Tensor:
    """Stretches of a half of the text, shape ``(6, 64)``.

    Args:
        half: 0 or 1.
        draw: says which stretches.
        own: the folder of a model with a tokenizer of its own.
    """
    tokens = _encoded(half, own)
    rows, length = BATCH
    begins = torch.randint(len(tokens) - length, (rows,), generator=draw)
    return torch.stack([tokens[begin : begin + length] for begin in begins.tolist()])
