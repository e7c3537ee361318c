"""All architectures, in the order of the page."""

from __future__ import annotations

from typing import Final

from studies.lines.networks.architecture import Architecture
from studies.lines.networks.images import RESNET, UNET, VIT
from studies.lines.networks.others import AUDIO, DIFFUSION, GRAPH
from studies.lines.networks.recurrent import GRU, LSTM, WORDS
from studies.lines.networks.texts import BERT, GPT2, LLAMA, MAMBA, MOE, T5

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: Final[dict[str, Architecture]] = {
    each.name: each
    for each in (
        LLAMA,
        BERT,
        GPT2,
        T5,
        MOE,
        VIT,
        LSTM,
        MAMBA,
        RESNET,
        GRU,
        UNET,
        DIFFUSION,
        GRAPH,
        AUDIO,
        WORDS,
    )
}
