"""A Llama in plain jnp, on the tensors of a published checkpoint, and such tensors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 12,
    "vocab_size": 23,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tensors(config, seed=0):
    """Random tensors by their names, as a checkpoint holds them."""
    embed, mlp, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, shared, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    linear = {"self_attn.q_proj": (heads * dim, embed), "self_attn.o_proj": (embed, heads * dim)}
    linear |= {f"self_attn.{name}_proj": (shared * dim, embed) for name in "kv"}
    biased = {*linear} if config.get("attention_bias") else set()
    linear |= {f"mlp.{name}_proj": (mlp, embed) for name in ("gate", "up")} | {"mlp.down_proj": (embed, mlp)}
    shapes = {"model.embed_tokens.weight": (vocab, embed), "model.norm.weight": (embed,)}
    shapes |= {} if config["tie_word_embeddings"] else {"lm_head.weight": (vocab, embed)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{at}.{name}.bias": linear[name][:1] for name in biased}
        shapes |= {f"{at}.{name}_layernorm.weight": (embed,) for name in ("input", "post_attention")}
    draw = np.random.default_rng(seed)
    return {name: (0.4 * draw.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def logits(weights, config, tokens, mlp=None):
    """Logits of the next token at every position; `mlp` acts on positions of a layer in the place of the gated part."""
    heads, shared, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    angles = jnp.arange(tokens.shape[1])[:, None] * frequencies(config)

    def linear(x, name):
        y = x @ weights[f"{name}.weight"].T
        return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y

    def norm(x, name):
        mean = jnp.mean(x * x, -1, keepdims=True)
        return x / jnp.sqrt(mean + config["rms_norm_eps"]) * weights[f"{name}.weight"]

    def turned(x):
        both = jnp.concatenate([angles, angles], -1)[:, None]
        half = jnp.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        return x * jnp.cos(both) + half * jnp.sin(both)

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        y = norm(x, f"{at}.input_layernorm")
        split = {name: linear(y, f"{at}.self_attn.{name}_proj") for name in "qkv"}
        split = {name: part.reshape(*part.shape[:2], -1, dim) for name, part in split.items()}
        q, k = turned(split["q"]), jnp.repeat(turned(split["k"]), heads // shared, 2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(dim)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, jnp.repeat(split["v"], heads // shared, 2))
        x = x + linear(mixed.reshape(*x.shape[:2], -1), f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm")
        if mlp is not None:
            x = x + mlp(y, layer)
            continue
        gate = jax.nn.silu(linear(y, f"{at}.mlp.gate_proj"))
        x = x + linear(gate * linear(y, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ weights[head].T


def frequencies(config):
    """Radians for each position, as the reference implementation of Llama 3.1 has them."""
    found = 1 / config["rope_theta"] ** (np.arange(0, config["head_dim"], 2) / config["head_dim"])
    scaling = config.get("rope_scaling")
    if scaling is None:
        return found.astype(np.float32)
    if scaling["rope_type"] == "linear":
        return (found / scaling["factor"]).astype(np.float32)
    low, high, first = (
        scaling[name] for name in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    slowed = list[float]()
    for frequency in found:
        length = 2 * math.pi / frequency
        smooth = (first / length - low) / (high - low)
        between = (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
        is_short, is_long = length < first / high, length > first / low
        slowed.append(frequency if is_short else frequency / scaling["factor"] if is_long else between)
    return np.array(slowed, np.float32)


def loss(weights, config, tokens):
    """Mean cross-entropy of the tokens themselves."""
    return entropy(logits(weights, config, tokens), tokens)


def entropy(made, tokens):
    """That of these logits."""
    return -jnp.take_along_axis(jax.nn.log_softmax(made), tokens[..., None], -1).mean()
