"""Programs that compilers are asked about beside the Loom rows: an MLP, and stacked layers under FSDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax
from jax.ad_checkpoint import checkpoint_name

import tapestry_jax as tp
from benchmarks.loom import Case

gelu = tp.Map(jax.nn.gelu)
linear = tp.einsum("b k, k n -> b n")


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x, up, down):
    return linear(gelu(linear(x, up)), down)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    def layer(x, up, down):
        return x + linear(gelu(linear(x, up)), down)

    return tp.stack(layer, up.shape[0])(x, up, down)


def mlp_case(tokens: int = 16384, embed: int = 1024, hidden: int = 4096) -> Case:
    """Value and gradients of an MLP: batch over `data`, hidden units over `model`."""
    return Case(
        f"MLP {tokens} x {embed} x {hidden}, with gradients",
        mlp,
        (_normal(tokens, embed), _normal(embed, hidden), _normal(hidden, embed)),
        {"batch": "data", "mlp": "model"},
        _mlp,
        _mlp_by_hand,
        {"data": 2, "model": 4},
        (P("data"), P(None, "model"), P("model")),
        P("data"),
        gradients=3,
    )


def fsdp_case(layers: int = 8, tokens: int = 16384, embed: int = 1024, hidden: int = 4096) -> Case:
    """Value and gradients of stacked layers whose parameters are stored over the axis of the batch."""
    stored = {"up": {"mlp": "data"}, "down": {"mlp": "data"}}
    return Case(
        f"FSDP of {layers} layers, {tokens} x {embed} x {hidden}, with gradients",
        deep,
        (_normal(tokens, embed), _normal(layers, embed, hidden), _normal(layers, hidden, embed)),
        {"batch": "data"},
        _deep,
        _deep_by_hand,
        {"data": 8},
        (P("data"), P(None, None, "data"), P(None, "data")),
        P("data"),
        gradients=3,
        options={"inputs": stored},
    )


def _normal(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _mlp(x: Any, up: Any, down: Any) -> Any:
    return jax.nn.gelu(x @ up) @ down


def _mlp_by_hand(mesh: Any) -> Callable[..., Any]:
    def local(x: Any, up: Any, down: Any) -> Any:
        return lax.psum(_mlp(x, up, down), "model")

    places = (P("data"), P(None, "model"), P("model"))
    return jax.shard_map(local, mesh=mesh, in_specs=places, out_specs=P("data"))


def _deep(x: Any, up: Any, down: Any) -> Any:
    return lax.scan(lambda x, weights: (x + _mlp(x, *weights), None), x, (up, down))[0]


def _deep_by_hand(mesh: Any) -> Callable[..., Any]:
    def layer(x: Any, weights: Any) -> Any:
        up = checkpoint_name(lax.all_gather(weights[0], "data", axis=1, tiled=True), "whole")
        down = checkpoint_name(lax.all_gather(weights[1], "data", axis=0, tiled=True), "whole")
        return x + _mlp(x, up, down), None

    def local(x: Any, up: Any, down: Any) -> Any:
        # What was gathered is gathered again for the gradient; all else is kept.
        kept = jax.checkpoint_policies.save_anything_except_these_names("whole")
        return lax.scan(jax.checkpoint(layer, policy=kept), x, (up, down))[0]

    places = (P("data"), P(None, None, "data"), P(None, "data"))
    return jax.shard_map(local, mesh=mesh, in_specs=places, out_specs=P("data"))
