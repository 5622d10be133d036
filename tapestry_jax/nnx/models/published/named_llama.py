"""How the tensors and configurations of Llama and Mixtral are called by Hugging Face."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapestry_jax.nnx.models.published.hugging_face import Naming, Source, Told

_FIELDS: dict[str, str] = {
    "num_hidden_layers": "layers",
    "hidden_size": "embed",
    "num_attention_heads": "heads",
    "vocab_size": "vocab",
    "intermediate_size": "mlp",
}
_OPTIONS = {
    "num_key_value_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "rms_norm_eps": "epsilon",
    "tie_word_embeddings": "tied",
    "rope_theta": "rotary_base",
}
_FIXED: dict[str, tuple[Any, ...]] = {"hidden_act": ("silu", "swish"), "attention_dropout": (0,)}
_MAY_BE_NONE = ("num_key_value_heads", "head_dim")
LLAMA_TOLD = Told(
    "Llama",
    _FIELDS,
    _OPTIONS | {"attention_bias": "attention_bias", "mlp_bias": "mlp_bias"},
    {"model_type": ("llama",)} | _FIXED,
    may_be_none=_MAY_BE_NONE,
)
MIXTRAL_TOLD = Told(
    "Mixtral",
    _FIELDS | {"num_local_experts": "experts", "num_experts_per_tok": "top_k"},
    _OPTIONS,
    {"model_type": ("mixtral",), "sliding_window": (None,), "router_jitter_noise": (0,)} | _FIXED,
    silent=frozenset(("router_aux_loss_coef", "output_router_logits")),
    may_be_none=_MAY_BE_NONE,
    defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
)
_OUTSIDE = {
    "embed.embedding": "model.embed_tokens.weight",
    "norm.scale": "model.norm.weight",
    "head.kernel": "lm_head.weight",
}
_PARTS = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "mlp.router": "block_sparse_moe.gate",
}
_EXPERTS = {"mlp.gate": "w1", "mlp.down": "w2", "mlp.up": "w3"}


def _source(path: tuple[Any, ...], like: Any, config: Any) -> Source:
    called = ".".join(map(str, path))
    if called in _OUTSIDE:
        return Source((_OUTSIDE[called],), *_layout(called, like.shape, like.dtype))
    number, part, last = path[1], ".".join(map(str, path[2:-1])), path[-1]
    stacked = number == "layer"
    layers = range(config.layers) if stacked else (number,)
    lead = (config.layers,) if stacked else ()
    whole = f"{part}.{last}"
    if whole in _EXPERTS:
        # (expert, inside, outside): a matrix of results by inputs for each expert.
        inside, outside = like.shape[-2:]
        experts = itertools.product(layers, range(config.experts))
        names = (f"model.layers.{at}.block_sparse_moe.experts.{e}.{_EXPERTS[whole]}.weight" for at, e in experts)
        dtype = like.dtype
        return Source(tuple(names), (outside, inside), lambda array: array.T.astype(dtype), (*lead, config.experts))
    tensor = f"{_PARTS[part]}.{'bias' if last == 'bias' else 'weight'}"
    shape = like.shape[1:] if stacked else like.shape
    names = tuple(f"model.layers.{layer}.{tensor}" for layer in layers)
    return Source(names, *_layout(whole, shape, like.dtype), lead)


def _layout(path: str, shape: tuple[int, ...], dtype: Any) -> tuple[tuple[int, ...], Callable[[Any], Any]]:
    """The shape of a tensor in a file, and how it becomes a parameter.

    A linear map is a matrix of results by inputs there; heads follow one another, those that share a key beside each
    other.
    """
    if not path.endswith(".kernel"):
        flat = shape if path.endswith(".embedding") else (math.prod(shape),)
        return flat, lambda array: np.reshape(array, shape).astype(dtype)
    inside = math.prod(shape[:-1]) if path == "attention.out.kernel" else shape[0]
    matrix = (math.prod(shape) // inside, inside)
    return matrix, lambda array: np.reshape(array.T, shape).astype(dtype)


def _may_be_there(name: str, config: Any) -> bool:
    # Older files hold the frequencies of positions, which follow from the configuration; tied ones the head a second
    # time.
    return name.endswith(".rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")


LLAMA = Naming(_source, _may_be_there, _OUTSIDE["head.kernel"], _OUTSIDE["embed.embedding"])
"""Of Llama, and of Mixtral, whose experts are called otherwise."""
