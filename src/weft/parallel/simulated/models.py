"""Transformers by their shapes: what each block computes, owns and keeps. Pure.

Of a block with P parameters and T tokens of width h in sequences of length s, forward takes 2 P T + 4 s h T operations
(the second term is attention's), and backward twice that. With its input alone kept (activation checkpointing) backward
computes the forward pass again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import UsageError
from weft.parallel.prediction.step import LayerRecord, RecordedStep
from weft.parallel.simulated.constants import accelerator
from weft.text import suggestion

KEPT_BYTES = 34  # of activations for each token and unit of width, of a block that keeps all (16-bit)
_BATCH = re.compile(r"(\d{1,6})x(\d{1,7})", re.ASCII)


@dataclass(frozen=True)
class TransformerShape:
    """A decoder: blocks of attention and a feed-forward net, and a vocabulary."""

    blocks: int
    width: int
    feed_forward: int
    vocabulary: int
    gated: bool = True  # three matrices in the feed-forward net, as in Llama; two as in GPT
    key_share: float = 1.0  # heads of keys and values for each of queries

    @property
    def block_parameters(self) -> int:
        attention = int((2 + 2 * self.key_share) * self.width**2)
        return attention + (3 if self.gated else 2) * self.width * self.feed_forward + 2 * self.width

    @property
    def parameters(self) -> int:
        return self.blocks * self.block_parameters + 2 * self.vocabulary * self.width


MODELS = {
    "125m": TransformerShape(12, 768, 3072, 50257, gated=False),
    "350m": TransformerShape(24, 1024, 4096, 50257, gated=False),
    "1b": TransformerShape(16, 2048, 8192, 32000),
    "3b": TransformerShape(26, 3200, 8640, 32000),
    "7b": TransformerShape(32, 4096, 11008, 32000),
    "8b": TransformerShape(32, 4096, 14336, 128256, key_share=0.25),
    "13b": TransformerShape(40, 5120, 13824, 32000),
    "34b": TransformerShape(48, 8192, 22016, 32000, key_share=0.125),
    "70b": TransformerShape(80, 8192, 28672, 32000, key_share=0.125),
}


def shape_of(name: str) -> TransformerShape:
    """Return a model by its size."""
    if name.lower() not in MODELS:
        raise UsageError(
            f"--model must be module:factory or one of {', '.join(MODELS)}, got {name!r}; "
            f"{suggestion(name.lower(), MODELS)}"
        )
    return MODELS[name.lower()]


def parse_tokens(text: str) -> tuple[int, int]:
    """Return sequences and their length: `4x2048`."""
    found = _BATCH.fullmatch(text.strip())
    if not found or not int(found[1]) or not int(found[2]):
        raise UsageError(
            f"--batch must be SEQUENCESxLENGTH for such a model, got {text[:40]!r}; write 4x2048"
        )
    return int(found[1]), int(found[2])


def transformer_step(
    name: str,
    gpu: str,
    *,
    sequences: int = 1,
    length: int = 4096,
    passes: int = 1,
    checkpointing: bool = True,
    type_bytes: int = 2,  # of parameters and gradients while a step runs
) -> RecordedStep:
    """Return the step of a transformer computed from its shapes, in bf16 with Adam's state in float32."""
    shape, flops = shape_of(name), accelerator(gpu).flops
    tokens = sequences * length

    def layer(layer_name: str, parameters: int, attention: int, kept: int) -> LayerRecord:
        forward = (2 * parameters + attention) * tokens / flops
        again = forward if checkpointing and attention else 0.0
        return LayerRecord(
            name=layer_name,
            forward_s=forward,
            backward_s=2 * forward + again,
            parameter_bytes=parameters * type_bytes,
            gradient_bytes=parameters * type_bytes,
            activation_bytes=kept * tokens * shape.width,
        )

    kept = 2 if checkpointing else KEPT_BYTES
    blocks = [
        layer(f"blocks.{number}", shape.block_parameters, 4 * length * shape.width, kept)
        for number in range(shape.blocks)
    ]
    edge = shape.vocabulary * shape.width
    embedding = LayerRecord(
        name="embedding",
        forward_s=0.0,
        backward_s=0.0,
        parameter_bytes=edge * type_bytes,
        gradient_bytes=edge * type_bytes,
        activation_bytes=2 * tokens * shape.width,
    )
    head = layer("head", edge, 0, 0)
    # The block that is computed again keeps all of its own for a moment.
    if checkpointing:
        again = (KEPT_BYTES - 2) * tokens * shape.width
        head = LayerRecord(
            **{
                field: getattr(head, field)
                for field in ("name", "forward_s", "backward_s", "parameter_bytes", "gradient_bytes")
            },
            activation_bytes=again,
        )
    return RecordedStep(
        name=name,
        layers=(embedding, *blocks, head),
        passes=passes,
        optimizer_s=shape.parameters * 16 / 1e12,  # reads and writes of state at a terabyte a second
        optimizer_bytes=shape.parameters * 12,  # float32: parameters and Adam's two moments
        device=gpu,
        timed=False,
        samples=sequences,
        gradient_type="float32" if type_bytes == 4 else "bfloat16",
    )
