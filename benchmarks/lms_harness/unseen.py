"""Families that large model support was not built with: models of transformers and torchvision from their configs, with
random weights, trained as their users do; and an LSTM. At parts of their activations and at checkpointing's peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from benchmarks.lms_harness.measure import Report, Step
from benchmarks.lms_harness.tuned import Goals, Made, compare_with_checkpoints
from torch import nn

VOCABULARY = 32_000


def built(name: str, **settings: Any) -> nn.Module:
    """Return a model of transformers on the card, from the name of its configuration and of its class."""
    transformers: Any = import_module("transformers")
    configuration, model = name.split("/")
    with torch.device("cuda"):
        made: nn.Module = getattr(transformers, model)(
            getattr(transformers, configuration)(vocab_size=VOCABULARY, **settings)
        )
    return made.train()


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, length), device="cuda")


def with_blocks(model: Any, blocks: Iterable[Any]) -> Any:
    """Note the blocks that one would checkpoint by hand; a list, so that they are not registered twice."""
    model.blocks = list(blocks)
    return model


def seeded(loss: Callable[[], torch.Tensor]) -> Step:
    """Set the seed anew before each step, so that dropout can be compared."""

    def forward() -> torch.Tensor:
        torch.manual_seed(1)
        return loss()

    return forward


def qwen(layers: int = 16, width: int = 2048, batch: int = 8, length: int = 2048) -> Made:
    """A decoder with norms in float32, rotary positions and gates, in bfloat16."""
    model: Any = built(
        "Qwen3Config/Qwen3ForCausalLM",
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 128,
        num_key_value_heads=width // 256,
        head_dim=128,
        use_cache=False,
    ).bfloat16()
    x = tokens(batch, length)
    return with_blocks(model, model.model.layers), lambda: model(input_ids=x, labels=x).loss


def t5(layers: int = 8, width: int = 1024, batch: int = 16, length: int = 512) -> Made:
    """An encoder and a decoder with dropout, attention by the plain formula with a learned bias, in bfloat16."""
    model: Any = built(
        "T5Config/T5ForConditionalGeneration",
        decoder_start_token_id=0,
        d_model=width,
        d_ff=4 * width,
        d_kv=64,
        num_layers=layers,
        num_heads=width // 64,
        use_cache=False,
    ).bfloat16()
    x, y = tokens(batch, length), tokens(batch, length)
    blocks = (*model.encoder.block, *model.decoder.block)
    return with_blocks(model, blocks), seeded(lambda: model(input_ids=x, labels=y).loss)


def gpt2(layers: int = 16, width: int = 1280, batch: int = 16, length: int = 1024) -> Made:
    """A decoder with dropout and float32 weights, under autocast."""
    model: Any = built(
        "GPT2Config/GPT2LMHeadModel",
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        n_positions=length,
        use_cache=False,
    )
    x = tokens(batch, length)

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            result: torch.Tensor = model(input_ids=x, labels=x).loss
        return result

    return with_blocks(model, model.transformer.h), seeded(loss)


def swin(batch: int = 128, side: int = 224) -> Made:
    """The Swin-B of torchvision: windows, rolls and paths dropped at random, under autocast."""
    models: Any = import_module("torchvision.models")
    with torch.device("cuda"):
        model: Any = models.swin_b()
        x = torch.randn(batch, 3, side, side)

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            result: torch.Tensor = model(x).float().square().mean()
        return result

    kind = import_module("torchvision.models.swin_transformer").SwinTransformerBlock
    return with_blocks(model, (part for part in model.modules() if isinstance(part, kind))), seeded(loss)


class Reader(nn.Module):
    """An LSTM of cuDNN that predicts the next token."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.reads = nn.LSTM(width, width, layers, batch_first=True, dropout=0.1)
        self.blocks: list[nn.Module] = []  # nothing to checkpoint by hand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.reads(self.embed(x))[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), x.flatten())


def lstm(layers: int = 4, width: int = 1024, batch: int = 64, length: int = 256) -> Made:
    with torch.device("cuda"):
        model = Reader(width, layers).bfloat16()
    x = tokens(batch, length)
    return model, seeded(lambda: model(x))


GOALS: Goals = (1.08, 1.20, 1.03)
FAMILIES: dict[str, Callable[[], Made]] = {"qwen": qwen, "t5": t5, "gpt2": gpt2, "swin": swin, "lstm": lstm}
CASES: dict[str, Callable[[Report, int], None]] = {
    name: partial(compare_with_checkpoints, name=name, make=make, goals=GOALS)
    for name, make in FAMILIES.items()
}
