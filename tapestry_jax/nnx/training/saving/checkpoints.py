"""Checkpoints of a training run, written by Orbax: a step is there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from combinators.errors import FormatError, message
from combinators.index_space.tensor_type import is_key
from combinators.stored.json import read_json
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.extras import required
from tapestry_jax.nnx.training.saving.differences import check_same

_SUMS = "sha256.json"
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
        self.folder, self._keep, self._manager = folder.resolve(), keep, None

    def steps(self) -> list[int]:
        """Of which steps there are checkpoints."""
        return sorted(self._open().all_steps()) if self.folder.is_dir() else []

    def save(self, step: int, arrays: Any, record: Mapping[str, Any]) -> None:
        """Write the arrays of a pytree, placed anyhow, and what JSON can say, for a step; one that is there stays."""
        if step in self.steps():
            return
        flat = _flat(arrays)
        told = {**record, "arrays": {name: described(leaf) for name, leaf in flat.items()}}
        args = self._orbax.args
        written = {name: _one_copy(leaf) for name, leaf in flat.items()}
        items = args.Composite(arrays=args.StandardSave(written), record=args.JsonSave(told))
        self._open().save(step, args=items, force=True)
        self._open().wait_until_finished()
        if jax.process_index() == 0:
            _write_sums(self.folder / str(step))
        if jax.process_count() > 1:
            # Without its sums a checkpoint is none: who reads it at once would fail, and the others wait for ever.
            multihost_utils.sync_global_devices(f"the sums of step {step}")

    def remove(self, step: int) -> None:
        """Remove the checkpoint of a step."""
        self._open().delete(step)

    def record(self, step: int) -> dict[str, Any]:
        """What was written beside the arrays of a step.

        Raises:
          TrainingError: when it cannot be read.
        """
        args = self._orbax.args
        try:
            _check_sums(self.folder / str(step))
            found = self._open().restore(step, args=args.Composite(record=args.JsonRestore()))["record"]
            _check_record(found)
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
            f"the checkpoint {self.folder / str(step)}", known, {name: described(leaf) for name, leaf in flat.items()}
        )
        wanted = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at)
            for (name, leaf), at in zip(flat.items(), jax.tree.leaves(places), strict=True)
        }
        args = self._orbax.args
        try:
            read = self._open().restore(step, args=args.Composite(arrays=args.StandardRestore(wanted)))["arrays"]
        except _UNREADABLE as error:
            raise self._unreadable(step, error) from error
        return jax.tree.map(
            _key_again, like, jax.tree.unflatten(jax.tree.structure(like), [read[name] for name in flat])
        )

    def close(self) -> None:
        """Let go of the folder."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _open(self) -> Any:
        if self._manager is None:
            options = self._orbax.CheckpointManagerOptions(max_to_keep=self._keep)
            self._manager = self._orbax.CheckpointManager(self.folder, options=options)
        return self._manager

    def _unreadable(self, step: int, error: Exception) -> TrainingError:
        told = str(error).strip().splitlines() or [type(error).__name__]
        headline = f"the checkpoint {self.folder / str(step)} cannot be read"
        return TrainingError(
            message(headline, told[0][:300], remedy="Remove that folder to go on from the one before it.")
        )


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
    if wrong:
        raise ValueError(f"its record does not say {', '.join(wrong)} as this version does")


def _write_sums(folder: Path) -> None:
    """Note what is in every file: TensorStore does not see all damage, and tells of the rest one array at a time."""
    sums = {file.relative_to(folder).as_posix(): _sum(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    partial = folder / f"{_SUMS}.partial"
    partial.write_text(json.dumps(sums))
    partial.replace(folder / _SUMS)


def _check_sums(folder: Path) -> None:
    """Raise ValueError for files that are missing or changed.

    A run that was killed before it wrote the sums, last of all, leaves a checkpoint of which nobody can say that it is
    whole; it looks like one whose sums were removed.
    """
    if not (folder / _SUMS).is_file():
        raise ValueError(f"{_SUMS} is missing: the run ended before the checkpoint was whole, or it was removed")
    sums = read_json((folder / _SUMS).read_text(), _SUMS)
    if not isinstance(sums, dict):
        raise ValueError(f"{_SUMS} is damaged")
    # Names are looked up among the files that are there, and make no path: they may lead anywhere.
    there = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    for name, known in sums.items():
        if name not in there:
            raise ValueError(f"{name} is missing")
        if _sum(folder / name) != known:
            raise ValueError(f"{name} is truncated or changed: {(folder / name).stat().st_size} bytes")


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
