"""How the tensors and configurations of GPT-2 are called by Hugging Face."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapestry_jax.nnx.models.published.hugging_face import Naming, Source, Told

GPT_TOLD = Told(
    "GPT",
    {"n_layer": "layers", "n_embd": "embed", "n_head": "heads", "vocab_size": "vocab", "n_positions": "max_len"},
    {"n_inner": "mlp", "layer_norm_epsilon": "epsilon", "tie_word_embeddings": "tied"},
    {
        "model_type": ("gpt2",),
        # The approximation by tanh, under its three names.
        "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    # Dropout is of training alone, and this model has none.
    silent=frozenset(
        ("attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx", "reorder_and_upcast_attn", "task_specific_params")
        + ("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj")
    ),
    may_be_none=("n_inner",),
    turns=False,
)
_OUTSIDE = {
    "embed.embedding": "wte.weight",
    "positions.embedding": "wpe.weight",
    "norm.scale": "ln_f.weight",
    "norm.bias": "ln_f.bias",
    "head.kernel": "lm_head.weight",
}
_PARTS = {
    "attention_norm": "ln_1",
    "attention.out": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_SIDE_BY_SIDE = ("attention.query", "attention.key", "attention.value")


def _source(path: tuple[Any, ...], like: Any, config: Any) -> Source:
    called, dtype = ".".join(map(str, path)), like.dtype
    if called in _OUTSIDE:
        turned = called == "head.kernel"
        shape = like.shape[::-1] if turned else like.shape
        return Source((_OUTSIDE[called],), shape, lambda array: (array.T if turned else array).astype(dtype))
    number, part, last = path[1], ".".join(map(str, path[2:-1])), path[-1]
    stacked = number == "layer"
    layers = range(config.layers) if stacked else (number,)
    shape = like.shape[1:] if stacked else like.shape
    own = "bias" if last == "bias" else "weight"
    lead = (config.layers,) if stacked else ()
    if part in _SIDE_BY_SIDE:
        # Matrices of inputs by results, of queries, keys and values side by side.
        at, width = _SIDE_BY_SIDE.index(part), config.embed
        names = tuple(f"h.{layer}.attn.c_attn.{own}" for layer in layers)
        whole = (3 * width,) if last == "bias" else (width, 3 * width)
        piece = slice(at * width, (at + 1) * width)
        return Source(names, whole, lambda array: np.reshape(array[..., piece], shape).astype(dtype), lead)
    names = tuple(f"h.{layer}.{_PARTS[part]}.{own}" for layer in layers)
    # Heads follow one another.
    flat = (math.prod(shape[:-1]), shape[-1]) if last == "kernel" else shape
    return Source(names, flat, lambda array: np.reshape(array, shape).astype(dtype), lead)


def _may_be_there(name: str, config: Any) -> bool:
    # Older files hold the causal masks, tied ones the head a second time.
    is_mask = name.startswith("h.") and name.endswith((".attn.bias", ".attn.masked_bias"))
    return is_mask or (config.tied and name == "lm_head.weight")


GPT2 = Naming(_source, _may_be_there, _OUTSIDE["head.kernel"], _OUTSIDE["embed.embedding"], "transformer.")
"""Of GPT-2, whose files name everything below `transformer`, or nothing."""
