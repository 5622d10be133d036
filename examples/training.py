"""What is trained, and what is made with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from settings import Settings
from text import SYMBOLS, standard_library, training_batch

import tapestry_jax as tp

WARMUP = 50
PLACEMENT = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}


def loss(model: Any, tokens: Any, targets: Any) -> Any:
    """Nats per byte: the program. Where it runs is said elsewhere."""
    return tp.nnx.cross_entropy(model(tokens), targets)


def optimizer(peak: float) -> optax.GradientTransformation:
    """AdamW, whose rate goes up to the peak in `WARMUP` steps, then down with the square root."""
    return optax.adamw(lambda count: peak * jnp.minimum((count + 1) / WARMUP, jnp.sqrt(WARMUP / (count + 1))), b2=0.99)


def planned(settings: Settings, mesh: Any) -> tuple[nnx.Module, tp.Plan]:
    """The model with its first parameters, and the plan of its loss."""
    config = tp.nnx.TransformerConfig(settings.layers, settings.embed, settings.heads, SYMBOLS, max_len=settings.length)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(settings.seed))
    windows = tp.TensorType({"batch": settings.batch, "seq": settings.length}, jnp.int32)
    graph = tp.trace(loss, model, windows, windows)
    return model, tp.plan(graph, mesh, {dim: axis for dim, axis in PLACEMENT.items() if axis in mesh.shape})


def make(
    mesh: dict[str, int],
    layers: int = 2,
    embed: int = 192,
    heads: int = 4,
    length: int = 128,
    batch: int = 16,
    learning_rate: float = 3e-3,
    seed: int = 0,
    checkpoint: str = "runs/train/checkpoint",
) -> tuple[tp.nnx.Trainer, Callable[[int], Any]]:
    """What `tapestry train examples/train.toml` trains: the model of the quickstart, and its batches."""
    settings = Settings(layers, embed, heads, length, batch, learning_rate, seed)
    data = standard_library().train
    model, plan = planned(settings, make_mesh(mesh))
    Path(checkpoint).parent.mkdir(parents=True, exist_ok=True)
    trainer = tp.nnx.Trainer(loss, model, optimizer(learning_rate), plan, checkpoint=checkpoint)
    return trainer, lambda step: training_batch(data, batch, length, seed, step)


def make_mesh(axes: dict[str, int]) -> Any:
    """A mesh of real devices where there are enough, otherwise of simulated ones."""
    wanted = math.prod(axes.values())
    jax.config.update("jax_num_cpu_devices", wanted)
    devices = jax.devices()
    if len(devices) < wanted:
        devices = jax.devices("cpu")
    # What is not planned runs beside what is.
    jax.config.update("jax_default_device", devices[0])
    return tp.mesh(devices, **axes)


def compare(trainer: tp.nnx.Trainer, model: nnx.Module, batch: Any) -> str:
    """The loss of one batch under the plan, and without a plan on one device.

    Raises:
      SystemExit: when they differ by more than rounding.
    """
    planned = trainer.evaluate([batch])["loss"]
    nnx.update(model, jax.tree.map(np.asarray, nnx.state(trainer.model)))
    plain = float(loss(model, *batch))
    if not abs(planned - plain) <= 1e-4 * max(1.0, abs(plain)):
        raise SystemExit(f"error: the planned loss is {planned:.7f}, the unplanned one {plain:.7f}")
    return f"planned loss {planned:.6f}, unplanned {plain:.6f}"


def sample(
    trainer: tp.nnx.Trainer, prompts: list[bytes], length: int, temperature: float, random: np.random.Generator
) -> list[bytes]:
    """Continue each prompt byte by byte until it is `length` bytes long.

    The forward pass is another program over the same parameters, planned with the same entries.
    """
    kind, model = tp.TensorType({"batch": len(prompts), "seq": length}, jnp.int32), trainer.model
    run, params = (
        tp.plan(tp.trace(model, kind), trainer.plan.mesh, dict(trainer.plan.entries)).compile(),
        nnx.state(model),
    )
    logits_at = jax.jit(
        lambda params, tokens, at: jax.lax.dynamic_index_in_dim(run(params, tokens), at, 1, keepdims=False)
    )
    rows = np.zeros((len(prompts), length), np.int32)
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = list(prompt)[:length]
    for at in range(min(map(len, prompts)), length):
        logits = np.asarray(logits_at(params, rows, at - 1)) / temperature
        # The largest of logits with Gumbel noise is a draw from their softmax.
        drawn = np.argmax(logits + random.gumbel(size=logits.shape), axis=-1)
        open_ended = np.array([len(prompt) <= at for prompt in prompts])
        rows[open_ended, at] = drawn[open_ended]
    return [bytes(row.astype(np.uint8)) for row in rows]
