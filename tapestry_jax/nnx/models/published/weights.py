"""Files of weights in the format safetensors, read as data: headers first, then one tensor after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from combinators.arguments import read_list
from combinators.errors import FormatError, GraphError, first_line, message, spelt
from combinators.frozen import dataclass

FLOATS = ("F64", "F32", "F16", "BF16")
"""What the format calls the dtypes that weights are read from."""
_MOST_TOLD = 40
_REMEDY = "Pass the files of one checkpoint, and the configuration that it was written with."


@dataclass(frozen=True)
class Stored:
    """A tensor of a file.

    Attributes:
      file: that holds it.
      shape: as the file says.
      dtype: as the format calls it.
    """

    file: Path
    shape: tuple[int, ...]
    dtype: str


def find_files(paths: Any) -> list[Path]:
    """The files that are meant: one, several, or all of a folder.

    Raises:
      GraphError: for what is no path.
      FormatError: for a folder without such files.
    """
    listed = (paths,) if isinstance(paths, str | PathLike) else read_list(paths, "paths= of from_safetensors")
    wrong = [path for path in listed if not isinstance(path, str | PathLike)]
    if wrong or not listed:
        details = (f"got {spelt(wrong[0])}" if wrong else "got none",)
        headline = "paths= of from_safetensors is not what it should be"
        raise GraphError(message(headline, *details, remedy='Pass "model.safetensors", several, or a folder.'))
    files = list[Path]()
    for path in map(Path, map(_text, listed)):
        inside = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not inside:
            raise FormatError(message(f"`{path}` holds no file *.safetensors", remedy=_REMEDY))
        files += inside
    if others := [file for file in files if file.exists() and not file.is_file()]:  # a pipe would be waited for
        raise FormatError(message(f"`{others[0]}` is no file", remedy=_REMEDY))
    return files


def read_headers(files: Sequence[Path]) -> tuple[dict[str, Stored], list[str]]:
    """What the files hold, by name, and which names stand in several.

    Raises:
      FormatError: where a file cannot be read; all of these at once.
    """
    opened, told = _opener(), list[str]()
    found, twice = dict[str, Stored](), list[str]()
    for file in files:
        try:
            with opened(file) as content:
                for name in content.keys():  # noqa: SIM118 - it is no mapping
                    piece = content.get_slice(name)
                    if name in found:
                        twice.append(f"`{name}` stands in {found[name].file.name} and in {file.name}")
                    found[name] = Stored(file, tuple(piece.get_shape()), str(piece.get_dtype()))
        except _unreadable() as error:
            told.append(f"{file}: {first_line(error)[:200]}")
    _refuse(f"{len(told)} of {len(files)} files of weights cannot be read", told)
    return found, twice


def check_layers(found: Mapping[str, Stored], layers: Any) -> None:
    """Refuse more layers than there are tensors, before anything is named that they would have.

    Raises:
      FormatError: where a layer has none.
    """
    if isinstance(layers, int) and layers > len(found):
        _refuse("these weights are not those of the model", [f"{layers} layers, and {len(found)} tensors in the files"])


def check_tensors(
    found: Mapping[str, Stored],
    twice: Sequence[str],
    wanted: Mapping[str, tuple[int, ...]],
    may_be_there: Callable[[str], bool],
) -> None:
    """Hold what files hold against what a model has.

    Args:
      found: what they hold.
      twice: what is told of names that stand twice.
      wanted: the shape of every tensor.
      may_be_there: whether a tensor that the model does not have is passed over.

    Raises:
      FormatError: where tensors are missing, left over, of another shape or of no float dtype: all of them.
    """
    told = [f"missing: `{name}` {shape}" for name, shape in wanted.items() if name not in found]
    for name, tensor in found.items():
        if name in wanted and tensor.shape != wanted[name]:
            told.append(f"`{name}` has the shape {tensor.shape}, expected {wanted[name]}")
        elif name in wanted and tensor.dtype not in FLOATS:
            told.append(f"`{name}` is of {tensor.dtype}, expected one of {', '.join(FLOATS)}")
        elif name not in wanted and not may_be_there(name):
            told.append(f"not of the model: `{name}` {tensor.shape}")
    _refuse("these weights are not those of the model", [*told, *twice])


def read_tensor(name: str, tensor: Stored) -> np.ndarray[Any, Any]:
    """The numbers of a tensor.

    Raises:
      FormatError: where the file is no longer what its header said.
    """
    try:
        with _opener()(tensor.file) as content:
            return content.get_tensor(name)
    except _unreadable() as error:
        _refuse("weights cannot be read", [f"{tensor.file}: {first_line(error)[:200]}"])
        raise


def _text(path: Any) -> str:
    found = fspath(path)
    return found if isinstance(found, str) else found.decode()


def _opener() -> Callable[[Path], Any]:
    try:
        # An extra: models are made and trained without it.
        from safetensors import safe_open
    except ModuleNotFoundError as error:
        remedy = "Install it: pip install 'tapestry-jax[weights]'."
        raise FormatError(message("weights are read by the package safetensors", remedy=remedy)) from error
    return lambda file: safe_open(file, framework="numpy")


def _unreadable() -> tuple[type[Exception], ...]:
    # An extra, which `_opener` found.
    from safetensors import SafetensorError

    return (OSError, ValueError, SafetensorError)


def _refuse(headline: str, told: Sequence[str]) -> None:
    if told:
        more = [f"and {len(told) - _MOST_TOLD} more"] * (len(told) > _MOST_TOLD)
        raise FormatError(message(headline, *told[:_MOST_TOLD], *more, remedy=_REMEDY))
