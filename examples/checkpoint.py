"""Checkpoints of a training run, written by Orbax: a step is there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

# Orbax reports every save; what the reader of the demo needs is printed by the demo.
logging.getLogger("absl").setLevel(logging.ERROR)

_SUMS = "sha256.json"
# What Orbax, TensorStore and the JSON reader raise for files that are missing, cut short or of another shape.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError)


class Checkpoints:
    """The checkpoints of one output folder; the newest two are kept.

    Args:
      folder: where they lie; made by the first save.
      fresh: whether the first save replaces what an earlier run left there.
    """

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self._folder, self._replaces = folder.resolve(), fresh
        self._manager: ocp.CheckpointManager | None = None

    def save(self, step: int, arrays: Any, record: dict[str, Any]) -> None:
        """Write arrays (any pytree, placed anyhow) and a record (what JSON can say) for a step."""
        if self._replaces:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._replaces = False
        items = ocp.args.Composite(arrays=ocp.args.StandardSave(_flat(arrays)), record=ocp.args.JsonSave(record))
        self._open().save(step, args=items, force=True)
        self._open().wait_until_finished()
        _write_sums(self._folder / str(step))

    def last(self) -> tuple[int, dict[str, Any]]:
        """The newest step and its record.

        Raises:
          SystemExit: when there is none, or it cannot be read.
        """
        step = self._open().latest_step() if self._folder.is_dir() else None
        if step is None:
            raise SystemExit(f"error: no checkpoint in {self._folder}\n  Run once without --resume.")
        try:
            _check_sums(self._folder / str(step))
            return step, self._open().restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))["record"]
        except _UNREADABLE as error:
            raise self._unreadable(step, error) from error

    def restore(self, step: int, like: Any) -> Any:
        """The arrays of a step.

        Args:
          step: from `last`.
          like: arrays whose structure, shapes and shardings the result has. Shapes are true on every mesh, so it may be
            another one than when they were saved.

        Raises:
          SystemExit: when they cannot be read, or have other shapes.
        """
        wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
        items = ocp.args.Composite(arrays=ocp.args.StandardRestore(_flat(wanted)))
        try:
            read = self._open().restore(step, args=items)["arrays"]
        except _UNREADABLE as error:
            raise self._unreadable(step, error) from error
        return jax.tree.unflatten(jax.tree.structure(like), [read[path] for path in _flat(wanted)])

    def close(self) -> None:
        """Let go of the folder."""
        if self._manager is not None:
            self._manager.close()

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            self._manager = ocp.CheckpointManager(self._folder, options=ocp.CheckpointManagerOptions(max_to_keep=2))
        return self._manager

    def _unreadable(self, step: int, error: Exception) -> SystemExit:
        told = str(error).strip().splitlines() or [type(error).__name__]
        return SystemExit(
            f"error: the checkpoint {self._folder / str(step)} cannot be read\n"
            f"  {told[0][:300]}\n"
            "  Remove that folder to go on from the one before it, or run without --resume."
        )


def _write_sums(folder: Path) -> None:
    """Note what is in every file: TensorStore does not see all damage, and tells of the rest one array at a time."""
    sums = {file.relative_to(folder).as_posix(): _sum(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    partial = folder / f"{_SUMS}.partial"
    partial.write_text(json.dumps(sums))
    partial.replace(folder / _SUMS)


def _check_sums(folder: Path) -> None:
    """Raise ValueError for files that are missing or changed; a run may have been killed before it wrote the sums."""
    if not (folder / _SUMS).exists():
        return
    for name, known in json.loads((folder / _SUMS).read_text()).items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if _sum(folder / name) != known:
            raise ValueError(f"{name} is truncated or changed: {(folder / name).stat().st_size} bytes")


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _flat(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
