"""A GPT-2 in plain jnp, on the tensors of a published checkpoint, and such tensors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_layer": 2,
    "n_embd": 16,
    "n_head": 4,
    "vocab_size": 23,
    "n_positions": 12,
    "n_ctx": 12,
    "n_inner": None,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "summary_type": "cls_index",
}


def tensors(config, seed=0):
    """Random tensors by their names, as a checkpoint holds them: matrices are inputs by results."""
    embed, mlp = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {"wte.weight": (config["vocab_size"], embed), "wpe.weight": (config["n_positions"], embed)}
    shapes |= {"ln_f.weight": (embed,), "ln_f.bias": (embed,)}
    wide = {"attn.c_attn": 3 * embed, "attn.c_proj": embed, "mlp.c_fc": mlp, "mlp.c_proj": embed}
    for layer in range(config["n_layer"]):
        for name, size in wide.items():
            inside = mlp if name == "mlp.c_proj" else embed
            shapes |= {f"h.{layer}.{name}.weight": (inside, size), f"h.{layer}.{name}.bias": (size,)}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{name}.weight": (embed,), f"h.{layer}.{name}.bias": (embed,)}
    draw = np.random.default_rng(seed)
    return {name: (0.4 * draw.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def logits(weights, config, tokens):
    """Logits of the next token at every position, by the published code of the model."""
    heads, embed = config["n_head"], config["n_embd"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(x, name):
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        return centred / jnp.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = weights["wte.weight"][tokens] + weights["wpe.weight"][: tokens.shape[1]]
    for layer in range(config["n_layer"]):
        whole = linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn")
        q, k, v = (part.reshape(*part.shape[:2], heads, -1) for part in jnp.split(whole, 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(embed // heads)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v)
        x = x + linear(mixed.reshape(x.shape), f"h.{layer}.attn.c_proj")
        x = x + linear(gelu(linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")), f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ weights["wte.weight"].T


def loss(weights, config, tokens):
    """Mean cross-entropy of the tokens themselves."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(weights, config, tokens)), tokens[..., None], -1)
    return -chosen.mean()
