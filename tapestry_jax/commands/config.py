"""A run of training that a file in TOML says: a function, its arguments, and those of the loop."""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.commands.piece import imported_piece
from tapestry_jax.commands.planned import read_file

_KEYS = {"make": str, "plot": str, "settings": dict, "fit": dict}
_OURS = ("self", "batches", "report")  # what the command gives the loop
_REMEDY = "Mend the file, or see `tapestry train --help`."
_PARAMETERS = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class TrainConfig:
    """What a file says.

    Attributes:
      named: the function that makes the trainer, `package.module:function`.
      make: that function.
      settings: its arguments.
      fit: arguments of `Trainer.fit`.
      plot: where the losses are drawn; or None.
    """

    named: str
    make: Callable[..., Any]
    settings: Mapping[str, Any]
    fit: Mapping[str, Any]
    plot: str | None


def read_config(path: str, loop: Callable[..., Any], command: str) -> TrainConfig:
    """Read a file, and import the function that it names.

    Args:
      path: of the file. Modules are looked for beside it first.
      loop: `Trainer.fit`, whose arguments the table `fit` holds.
      command: who asks, as errors call it.

    Raises:
      TapestryError: when it cannot be read; when the function cannot be imported; or with all keys that are not known
        or missing, and all values of another kind.
    """
    try:
        said = tomllib.loads(read_file(path, command, "Name a file in TOML."))
    except (ValueError, RecursionError) as error:  # integers of too many digits, and tables too deep, raise their own
        raise TapestryError(
            message(f"{command}: {spelt(path, 200)} is no TOML.", str(error)[:300], remedy=_REMEDY)
        ) from error
    wrong = _unknown(said, _KEYS, "")
    wrong += [
        f"`{key}` is {_shown(said[key])}, expected {'a table' if kind is dict else 'a text'}"
        for key, kind in _KEYS.items()
        if key in said and not isinstance(said[key], kind)
    ]
    wrong += [] if "make" in said else ["`make` is missing: package.module:function"]
    settings, fit = ({} if not isinstance(said.get(key), dict) else said[key] for key in ("settings", "fit"))
    make: Any = None
    if isinstance(named := said.get("make"), str):
        make = _function(named, Path(path).resolve().parent, command)
        wrong += _misfits("settings", settings, make)
    wrong += _misfits("fit", fit, loop, _OURS)
    if wrong:
        raise TapestryError(message(f"{command}: {spelt(path, 200)} does not say a run.", *wrong, remedy=_REMEDY))
    return TrainConfig(said["make"], make, settings, fit, said.get("plot"))


def _function(named: str, folder: Path, command: str) -> Callable[..., Any]:
    for place in (str(Path.cwd()), str(folder)):
        if place not in sys.path:
            sys.path.insert(0, place)
    found = imported_piece(named, command, TapestryError)
    if callable(found):
        return found
    details = f"got {type(found).__name__}: {spelt(found)}"
    remedy = "Name a function that returns a trainer and its batches."
    raise TapestryError(message(f"{command}: {named} is no function.", details, remedy=remedy))


def _misfits(where: str, said: Mapping[str, Any], function: Callable[..., Any], ours: Iterable[str] = ()) -> list[str]:
    """What of a table is not an argument of a function, in words."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of some classes and functions that are written in C nobody knows
        return [f"`make`: nothing tells what arguments {spelt(function, 60)} takes"]
    known = {name: each for name, each in parameters.items() if each.kind in _PARAMETERS and name not in ours}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    wrong = [] if takes_any else _unknown(said, known, f"{where}.")
    needed = [name for name, each in known.items() if each.default is inspect.Parameter.empty]
    wrong += [f"`{where}.{name}` is missing" for name in needed if name not in said]
    return wrong + [
        f"`{where}.{name}` is {_shown(value)}, expected one like its default {known[name].default!r:.60}"
        for name, value in said.items()
        if name in known and not _is_like(value, known[name].default)
    ]


def _unknown(said: Iterable[str], known: Iterable[str], where: str) -> list[str]:
    """Keys that are not known, each with the nearest that is."""
    names = list(known)
    wrong: list[str] = []
    for key in said:
        if key not in names:
            near = get_close_matches(key, names, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(names) or 'none'}"
            wrong.append(f"`{where}{key}` is not known; {hint}")
    return wrong


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value may stand where a default does; of other kinds than TOML has, anything may."""
    if isinstance(default, bool | int | str):
        return type(value) is type(default)
    if isinstance(default, float):
        return type(value) in (int, float)
    return not isinstance(default, dict | list) or isinstance(value, type(default))  # pyright: ignore[reportUnknownArgumentType]


def _shown(value: Any) -> str:
    return f"{spelt(value, 60)}"
