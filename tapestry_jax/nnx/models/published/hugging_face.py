"""Models as Hugging Face writes them: what a `config.json` says, and how tensors of files become parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Sharding

from combinators.errors import FormatError, GraphError, first_line, message, spelt
from combinators.frozen import dataclass
from combinators.stored.json import LARGEST_TEXT, read_json
from tapestry_jax.nnx.attention.positions import RotaryScaling
from tapestry_jax.nnx.models.published.weights import Stored, check_tensors, find_files, read_headers, read_tensor

MEANS_NOTHING = frozenset(
    ("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "use_cache")
    + ("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "max_position_embeddings")
    + ("pretraining_tp", "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id")
)
"""What changes no logits, whatever the model."""
_TURNS = ("rope_scaling", "rope_parameters")


@dataclass(frozen=True)
class Told:
    """What the `config.json` of a kind of models says.

    Attributes:
      name: of the kind, `Llama`.
      fields: what has to stand there, and how a configuration of ours calls it.
      options: what may stand there.
      fixed: what may say one of a few things.
      silent: what changes no logits, beside `MEANS_NOTHING`.
      may_be_none: fields and options that may be null.
      defaults: of options that ours have another default for.
      turns: whether it tells of rotary positions.
    """

    name: str
    fields: Mapping[str, str]
    options: Mapping[str, str]
    fixed: Mapping[str, tuple[Any, ...]]
    silent: frozenset[str] = frozenset()
    may_be_none: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    turns: bool = True

    @property
    def remedy(self) -> str:
        """What errors end with."""
        return f"Pass the config.json of a {self.name}, or write a {self.name}Config."


@dataclass(frozen=True)
class Source:
    """Where a parameter comes from.

    Attributes:
      names: of its tensors, in order.
      shape: of each of them.
      read: what becomes of one.
      lead: sizes of the leading dimensions along which they are stacked: layers, experts.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    read: Callable[[Any], Any]
    lead: tuple[int, ...] = ()


@dataclass(frozen=True)
class Naming:
    """How a kind of models calls its tensors.

    Attributes:
      source: of the path of a parameter, its type and the model's configuration; names have no prefix.
      may_be_there: whether a tensor is passed over that the model does not have: its name and the configuration.
      head: the tensor of the head.
      table: that of the token vectors.
      prefix: what files may put before all names but that of the head.
    """

    source: Callable[[tuple[Any, ...], Any, Any], Source]
    may_be_there: Callable[[str, Any], bool]
    head: str
    table: str
    prefix: str = ""


def read_fields_of(kind: Any, told: Told, config: Any, options: Mapping[str, Any]) -> Any:
    """A configuration of ours, of what a file tells and of fields that it does not tell.

    Args:
      kind: the class of the configuration.
      told: what such files say.
      config: a file, the folder that it lies in, or what it says.
      options: fields that are given.

    Raises:
      FormatError: where it cannot be read, or says what the model cannot do: all of it.
      GraphError: for anything else.
    """
    unknown = sorted({*options} - {*kind.__dataclass_fields__})
    if unknown:
        details = (f"expected some of {', '.join(kind.__dataclass_fields__)}",)
        headline = f"{kind.__name__} has no field `{'`, `'.join(unknown)}`"
        raise GraphError(message(headline, *details, remedy="Leave it out."))
    return kind(**{**_read_told(config, told), **options})


def _read_told(config: Any, told: Told) -> dict[str, Any]:
    said = _read(config, told)
    known = {*told.fields, *told.options, *told.fixed, *MEANS_NOTHING, *told.silent, *(_TURNS if told.turns else ())}
    wrong = [f"missing: `{name}`" for name in told.fields if name not in said]
    wrong += [f"unknown: `{name}`, {spelt(value, 60)}" for name, value in said.items() if name not in known]
    for name, allowed in told.fixed.items():
        if name in said and said[name] not in allowed:
            wrong.append(f"`{name}` is {spelt(said[name], 40)}, expected {' or '.join(map(repr, allowed))}")
    names: dict[str, str] = dict(told.fields) | dict(told.options)
    given: dict[str, Any] = {name: value for name, value in said.items() if name in names}
    wrong += [f"`{name}` is None" for name, value in given.items() if value is None and name not in told.may_be_none]
    turns = dict[str, Any]() if not told.turns else _read_turns(said, wrong)
    if wrong:
        raise FormatError(message(f"this configuration is not that of a {told.name}", *wrong, remedy=told.remedy))
    defaults: dict[str, Any] = {names[name]: value for name, value in told.defaults.items()}
    return {**defaults, **{names[name]: value for name, value in given.items() if value is not None}, **turns}


def read_weights(model: Any, naming: Naming, paths: Any, shardings: Any) -> Any:
    """The state of a model, of files that name its tensors as Hugging Face does.

    Args:
      model: the model, whose parameters may be without numbers.
      naming: of its tensors.
      paths: as `from_safetensors` takes them.
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
        details = (f"expected {len(flat)}, one for each parameter", f"got {len(places)}: {spelt(shardings)}")
        raise GraphError(message("shardings= of from_safetensors", *details, remedy="Pass plan.in_shardings[0]."))
    config = model.config
    # What is no parameter, such as what a layer says beside its result, is not stored.
    sources = [
        naming.source(path, variable.get_value(), config) if isinstance(variable, nnx.Param) else None
        for path, variable in flat
    ]
    found, twice = read_headers(find_files(paths))
    prefix = naming.prefix if any(name.startswith(naming.prefix) for name in found) else ""

    def called(name: str) -> str:
        return name if name == naming.head else prefix + name

    def is_passed_over(name: str) -> bool:
        # A head below the prefix is not the one that is held against the token vectors.
        own = name.removeprefix(prefix)
        return called(own) == name and naming.may_be_there(own, config)

    wanted = {called(name): source.shape for source in sources if source is not None for name in source.names}
    check_tensors(found, twice, wanted, is_passed_over)
    if config.tied:
        _check_tied(naming.head, called(naming.table), found)

    def load(variable: Any, source: Source | None, place: Any) -> Any:
        like = variable.get_value()
        if source is None:
            array = np.zeros(like.shape, like.dtype)
        else:
            pieces = [source.read(read_tensor(called(name), found[called(name)])) for name in source.names]
            array = np.reshape(np.stack(pieces), like.shape) if source.lead else pieces[0]
        return jnp.asarray(array) if place is None else jax.device_put(array, place)

    loaded = [load(variable, *both) for (_, variable), *both in zip(flat, sources, places, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(state), loaded)


def _check_tied(head: str, table: str, found: Mapping[str, Stored]) -> None:
    """A head beside token vectors that are the head has to be the same."""
    if head in found and not np.array_equal(read_tensor(head, found[head]), read_tensor(table, found[table])):
        details = (f"`{head}` is not `{table}`, which the configuration ties to it",)
        remedy = "Pass tied=False to from_hugging_face of the configuration, or the files of this configuration."
        raise FormatError(message("these weights are not those of the model", *details, remedy=remedy))


def _read(config: Any, kind: Told) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return dict(config)
    if not isinstance(config, str | PathLike):
        details = ("expected a path, or what the file says", f"got {type(config).__name__}: {spelt(config)}")
        raise GraphError(message(f"config= of {kind.name}Config.from_hugging_face", *details, remedy=kind.remedy))
    path = Path(str(config))
    path = path / "config.json" if path.is_dir() else path
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise OSError("it is no file")
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        details = (f"{path}: {first_line(error)[:200]}",)
        raise FormatError(message("a configuration cannot be read", *details, remedy=kind.remedy)) from error
    told = read_json(text, f"the configuration {path}", kind.remedy, any_text=True)
    if not isinstance(told, dict):
        details = (f"got {type(told).__name__}",)
        raise FormatError(message(f"the configuration {path} is no object", *details, remedy=kind.remedy))
    return told


def _read_turns(told: Mapping[str, Any], wrong: list[str]) -> dict[str, Any]:
    """Base and scaling of rotary positions; what is not understood is added to `wrong`."""
    found = dict[str, Any]()
    for name in _TURNS:
        given = told.get(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            wrong.append(f"`{name}` is {spelt(given, 40)}, expected an object")
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
        wrong.append(f"`{where}` is of the kind {spelt(kind, 40)}, expected one of {', '.join(_SCALINGS)}")
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
