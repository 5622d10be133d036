"""Checkpoints of a training run, written by Orbax: a step is there as a whole or not at all."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from combinators.errors import FormatError, message
from combinators.index_space.tensor_type import is_key
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.extras import required
from tapestry_jax.nnx.training.saving.differences import check_same
from tapestry_jax.nnx.training.saving.first import first_does
from tapestry_jax.nnx.training.saving.folder import Folder, written
from tapestry_jax.nnx.training.saving.recent import is_told
from tapestry_jax.nnx.training.saving.sums import check_sums

# What Orbax, TensorStore and the JSON reader raise for files that are missing, cut short or of another shape.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, FormatError)


class Checkpoints:
    """The checkpoints of a folder.

    Args:
      folder: where they lie; made by the first save.
      keep: how many of the newest are kept.

    Raises:
      TrainingError: when Orbax is not installed.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._orbax: Any = required("orbax.checkpoint", "orbax-checkpoint", "checkpoints")
        # Orbax reports every save to whoever has set up logging.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder, self._keep, self._writer = folder.resolve(), keep, None
        self._there = Folder(self.folder)
        # Of the checkpoint that was written or read last, what it tells.
        self._told = dict[int, str]()

    def marks(self) -> dict[int, str]:
        """Which checkpoints there are: by step a mark, empty where it is not whole.

        Raises:
          TrainingError: when the folder cannot be read.
        """
        return self._there.marks()

    def restored(self, step: int, there: Mapping[int, str]) -> None:
        """A run goes on from a step.

        Args:
          step: that was read.
          there: `marks` from before: its next save may replace those of later steps, and none that came since.
        """
        self._there.restored(step, there)

    def check_known(self) -> None:
        """The run that writes here wrote or restored whatever is there.

        Raises:
          TrainingError: where there are checkpoints of another one.
        """
        first_does(self._there.check_known)

    def save(self, step: int, arrays: Any, record: Mapping[str, Any]) -> None:
        """Write the arrays of a pytree, placed anyhow, and what JSON can say, for a step.

        One that is there stays, if it tells the same; else it is written anew, and there until the new one is.

        Raises:
          TrainingError: when it cannot be written, and where there are checkpoints of another run; those stay.
        """
        flat = _flat(arrays)
        told = {**record, "arrays": {name: described(leaf) for name, leaf in flat.items()}}
        is_known = self._told.get(step) == json.dumps(told)
        begun = first_does(lambda: self._there.begin(step, anew=not is_known))
        if begun is None:
            return
        try:
            with written(self._there.at(step)), _told_once():
                args = self._orbax.args
                copies = {name: _one_copy(leaf) for name, leaf in flat.items()}
                items = args.Composite(arrays=args.StandardSave(copies), record=args.JsonSave(told))
                self._open().save(self.folder / begun, args=items)
            first_does(lambda: self._there.finish(step, self._keep))
            self._told = {step: json.dumps(told)}
        except BaseException as error:
            # What Orbax keeps of a save that failed would be told by the next one.
            self._writer = None
            self._there.drop()
            if isinstance(error, TrainingError) and jax.process_index() == 0:
                self._there.check_known(error)
            raise

    def record(self, step: int) -> dict[str, Any]:
        """What was written beside the arrays of a step.

        Raises:
          TrainingError: when it cannot be read.
        """
        args = self._orbax.args
        try:
            check_sums(self._there.at(step))
            found = self._open().restore(self._there.at(step), args=args.Composite(record=args.JsonRestore()))["record"]
            _check_record(found)
            self._told = {step: json.dumps(found)}
            return found
        except _UNREADABLE as error:
            raise self._unreadable(step, error) from error

    def arrays(self, step: int, like: Any, places: Any) -> Any:
        """The arrays of a step.

        Args:
          step: one of `steps`.
          like: types of what is read, in a pytree.
          places: their shardings. Shapes are true on every mesh, so it may be another one than when they were saved.

        Raises:
          TrainingError: for arrays of another model or optimizer, listing all that differ; when they cannot be read.
        """
        known = self.record(step).get("arrays", {})
        flat = _flat(like)
        check_same(
            f"the checkpoint {self._there.at(step)}", known, {name: described(leaf) for name, leaf in flat.items()}
        )
        wanted = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at)
            for (name, leaf), at in zip(flat.items(), jax.tree.leaves(places), strict=True)
        }
        args = self._orbax.args
        try:
            read = self._open().restore(self._there.at(step), args=args.Composite(arrays=args.StandardRestore(wanted)))[
                "arrays"
            ]
        except Exception as error:
            # Of files that went while they were read Orbax tells by an exception of no class.
            if type(error) is not Exception and not isinstance(error, _UNREADABLE):
                raise
            raise self._unreadable(step, error) from error
        return jax.tree.map(
            _key_again, like, jax.tree.unflatten(jax.tree.structure(like), [read[name] for name in flat])
        )

    def close(self) -> None:
        """Let go of the folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Any:
        if self._writer is None:
            self._writer = self._orbax.Checkpointer(self._orbax.CompositeCheckpointHandler())
        return self._writer

    def _unreadable(self, step: int, error: Exception) -> TrainingError:
        told = str(error).strip().splitlines() or [type(error).__name__]
        headline = f"the checkpoint {self._there.at(step)} cannot be read"
        remedy = "Remove that folder to go on from the one before it."
        if isinstance(error, PermissionError) or re.search("PERMISSION_DENIED|Permission denied", str(error)):
            remedy = "Let this process read it: it may be whole."
        return TrainingError(message(headline, told[0][:300], remedy=remedy))


@contextmanager
def _told_once() -> Generator[None]:
    """What Orbax's threads fail with is raised: they need not print it as well."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def described(leaf: Any) -> str:
    """The type of an array, as a checkpoint holds it; of random keys that of their words."""
    if is_key(leaf.dtype):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return f"{leaf.dtype}({', '.join(map(str, leaf.shape))})"


def _flat(tree: Any) -> dict[str, Any]:
    """Arrays by path; words in the place of random keys."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): _words(leaf) for path, leaf in leaves}


def _one_copy(leaf: Any) -> Any:
    """Of an array that several devices of this process hold in whole or in part, each piece once.

    Orbax would let each of them write a part of it, which JAX cuts by a program for each shape and device.
    """
    at = getattr(leaf, "sharding", None)
    if not isinstance(at, NamedSharding) or not leaf.is_fully_addressable:
        return leaf
    cut = {axis for axes in at.spec if axes is not None for axis in ((axes,) if isinstance(axes, str) else axes)}
    devices: Any = at.mesh.devices
    first = devices[tuple(slice(None) if name in cut else slice(1) for name in at.mesh.axis_names)]
    mesh = Mesh(first, at.mesh.axis_names, axis_types=at.mesh.axis_types)
    pieces = {shard.device: shard.data for shard in leaf.addressable_shards}
    once = NamedSharding(mesh, at.spec, memory_kind=at.memory_kind)
    return jax.make_array_from_single_device_arrays(leaf.shape, once, [pieces[device] for device in first.flat])


def _words(leaf: Any) -> Any:
    if not is_key(leaf.dtype):
        return leaf
    return jax.random.key_data(leaf) if isinstance(leaf, jax.Array) else jax.eval_shape(jax.random.key_data, leaf)


def _key_again(like: Any, read: Any) -> Any:
    if not is_key(like.dtype):
        return read
    kinds: list[Any] = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)  # a type alone does not say it
    return jax.random.wrap_key_data(read, impl=kinds[0])


def _check_record(found: Any) -> None:
    """Raise ValueError for a record that another version wrote, or something else."""
    kinds: dict[str, Any] = {"arrays": dict, "history": list, "record": dict, "batches": (dict, type(None))}
    there = found if isinstance(found, dict) else {}
    wrong = [name for name, kind in kinds.items() if name not in there or not isinstance(there[name], kind)]
    # Before it was kept a checkpoint had none.
    wrong += ["recent"] * ("recent" in there and not is_told(there["recent"]))
    wrong += ["skipped"] * (not _are_texts(there.get("skipped", [])))
    if wrong:
        raise ValueError(f"its record does not say {', '.join(wrong)} as this version does")


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)  # pyright: ignore[reportUnknownVariableType]
