"""Llama as Hugging Face writes it: what its `config.json` says, and how its tensors are called and laid out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Sharding

from combinators.errors import FormatError, GraphError, first_line, message
from combinators.frozen import dataclass
from combinators.stored.json import LARGEST_TEXT, read_json
from tapestry_jax.nnx.attention.positions import RotaryScaling
from tapestry_jax.nnx.models.weights import Stored, check_tensors, find_files, read_headers, read_tensor

_FIELDS = {
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
    "attention_bias": "attention_bias",
    "mlp_bias": "mlp_bias",
    "tie_word_embeddings": "tied",
    "rope_theta": "rotary_base",
}
_FIXED = {"model_type": ("llama",), "hidden_act": ("silu", "swish"), "attention_dropout": (0,)}
"""What may stand there alone."""
_MEANS_NOTHING = frozenset(
    ("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "use_cache")
    + ("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "max_position_embeddings")
    + ("pretraining_tp", "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id")
)
"""What changes no logits."""
_REMEDY = "Pass the config.json of a Llama, or write a LlamaConfig."


def read_llama_config(config: Any) -> dict[str, Any]:
    """The fields of a `LlamaConfig`.

    Args:
      config: a file, the folder that it lies in, or what it says.

    Raises:
      FormatError: where it cannot be read, or says what the model cannot do: all of it.
      GraphError: for anything else.
    """
    told = _read(config)
    known = {*_FIELDS, *_OPTIONS, *_FIXED, *_MEANS_NOTHING, "rope_scaling", "rope_parameters"}
    wrong = [f"missing: `{name}`" for name in _FIELDS if name not in told]
    wrong += [f"unknown: `{name}`, {value!r:.60}" for name, value in told.items() if name not in known]
    for name, allowed in _FIXED.items():
        if name in told and told[name] not in allowed:
            wrong.append(f"`{name}` is {told[name]!r:.40}, expected {' or '.join(map(repr, allowed))}")
    may_be_none = ("num_key_value_heads", "head_dim")
    given = {name: value for name, value in told.items() if name in _FIELDS | _OPTIONS}
    wrong += [f"`{name}` is None" for name, value in given.items() if value is None and name not in may_be_none]
    turns = _read_turns(told, wrong)
    if wrong:
        raise FormatError(message("this configuration is not that of a Llama", *wrong, remedy=_REMEDY))
    return {(_FIELDS | _OPTIONS)[name]: value for name, value in given.items() if value is not None} | turns


def read_llama_weights(model: Any, paths: Any, shardings: Any) -> Any:
    """The state of a Llama, of files that name its tensors as Hugging Face does.

    Args:
      model: the model, whose parameters may be without numbers.
      paths: as `Llama.from_safetensors` takes them.
      shardings: where parameters lie, in the structure of the state, or None.

    Raises:
      FormatError: where files are no such weights.
      GraphError: when an argument is not what it should be.
    """
    state = nnx.state(model)
    flat = list(nnx.to_flat_state(state))
    places: list[Any] = [None] * len(flat) if shardings is None else jax.tree.leaves(shardings)
    fits = len(places) == len(flat) and all(isinstance(place, Sharding | None) for place in places)
    if not fits:
        details = (f"expected {len(flat)}, one for each parameter", f"got {len(places)}: {shardings!r:.80}")
        raise GraphError(message("shardings= of from_safetensors", *details, remedy="Pass plan.in_shardings[0]."))
    sources = [_source(path, variable.get_value(), model.config) for path, variable in flat]
    wanted = {name: source.shape for source in sources for name in source.names}
    found, twice = read_headers(find_files(paths))
    check_tensors(found, twice, wanted, _may_be_there(model.config))
    _check_tied(model.config, found)

    def load(source: _Source, place: Any) -> Any:
        layers = [source.read(read_tensor(name, found[name])) for name in source.names]
        array = np.stack(layers) if source.stacked else layers[0]
        return jnp.asarray(array) if place is None else jax.device_put(array, place)

    arrays = [load(source, place) for source, place in zip(sources, places, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(state), arrays)


@dataclass(frozen=True)
class _Source:
    """Where a parameter comes from.

    Attributes:
      names: of its tensors, one for each layer that it holds.
      shape: of each of them.
      read: what becomes of one.
      stacked: whether the parameter has a leading dimension of layers.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    read: Callable[[Any], Any]
    stacked: bool = False


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
}


def _source(path: tuple[Any, ...], like: Any, config: Any) -> _Source:
    called = ".".join(map(str, path))
    if called in _OUTSIDE:
        shape, read = _layout(called, like.shape, like.dtype)
        return _Source((_OUTSIDE[called],), shape, read)
    number, part, last = path[1], ".".join(map(str, path[2:-1])), path[-1]
    tensor = f"{_PARTS[part]}.{'bias' if last == 'bias' else 'weight'}"
    stacked = number == "layer"
    shape, read = _layout(f"{part}.{last}", like.shape[1:] if stacked else like.shape, like.dtype)
    layers = range(config.layers) if stacked else (number,)
    return _Source(tuple(f"model.layers.{layer}.{tensor}" for layer in layers), shape, read, stacked)


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


def _may_be_there(config: Any) -> Callable[[str], bool]:
    # Older files hold the frequencies of positions, which follow from the configuration; tied ones the head a second
    # time.
    def may(name: str) -> bool:
        return name.endswith(".rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")

    return may


def _check_tied(config: Any, found: Mapping[str, Stored]) -> None:
    """A head beside token vectors that are the head has to be the same."""
    names = [_OUTSIDE["head.kernel"], _OUTSIDE["embed.embedding"]]
    if config.tied and names[0] in found:
        head, table = (read_tensor(name, found[name]) for name in names)
        if not np.array_equal(head, table):
            details = (f"`{names[0]}` is not `{names[1]}`, which the configuration ties to it",)
            remedy = "Pass tied=False to LlamaConfig.from_hugging_face, or the files of this configuration."
            raise FormatError(message("these weights are not those of the model", *details, remedy=remedy))


def _read(config: Any) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return dict(config)
    if not isinstance(config, str | PathLike):
        details = ("expected a path, or what the file says", f"got {type(config).__name__}: {config!r:.80}")
        raise GraphError(message("config= of LlamaConfig.from_hugging_face", *details, remedy=_REMEDY))
    path = Path(str(config))
    path = path / "config.json" if path.is_dir() else path
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        details = (f"{path}: {first_line(error)[:200]}",)
        raise FormatError(message("a configuration cannot be read", *details, remedy=_REMEDY)) from error
    told = read_json(text, f"the configuration {path}", _REMEDY)
    if not isinstance(told, dict):
        details = (f"got {type(told).__name__}",)
        raise FormatError(message(f"the configuration {path} is no object", *details, remedy=_REMEDY))
    return told


def _read_turns(told: Mapping[str, Any], wrong: list[str]) -> dict[str, Any]:
    """Base and scaling of rotary positions; what is not understood is added to `wrong`."""
    found = dict[str, Any]()
    for name in ("rope_scaling", "rope_parameters"):
        given = told.get(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            wrong.append(f"`{name}` is {given!r:.40}, expected an object")
            continue
        options = dict(given)
        kind = options.pop("rope_type", options.pop("type", "default"))
        options.pop("type", None)
        if "rope_theta" in options:
            found["rotary_base"] = options.pop("rope_theta")
        scaling = _scaling(kind, options, name, wrong)
        if scaling is not None:
            found["rotary_scaling"] = scaling
    return found


_SCALINGS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low",
        "high_freq_factor": "high",
        "original_max_position_embeddings": "original",
    },
}


def _scaling(kind: Any, options: dict[str, Any], where: str, wrong: list[str]) -> RotaryScaling | None:
    if not isinstance(kind, str) or kind not in _SCALINGS:
        wrong.append(f"`{where}` is of the kind {kind!r:.40}, expected one of {', '.join(_SCALINGS)}")
        return None
    names = _SCALINGS[kind]
    if {*options} != {*names}:
        wrong.append(f"`{where}` holds {sorted(options)}, expected {sorted(names)}")
        return None
    if not names:
        return None
    try:
        return RotaryScaling(**{names[name]: value for name, value in options.items()})
    except GraphError as error:
        wrong.append(f"`{where}`: {first_line(error)}")
        return None
