"""A fabric to be damaged, and what it has to say whatever happens to its catalogue: what was written, or an error."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue.connection import FILE

X = np.arange(1, 61, dtype=np.int32).reshape(20, 3)
SPARSE = np.zeros(200, np.int32)
SPARSE[[4, 5, 77, 199]] = 4, 5, 77, 199
NOW = {"x": X, "y": 2 * X, "sparse": SPARSE, "more/z": X[:6] + 9, "changed": X[::-1]}
KEPT = {**NOW, "changed": X + 7}
BOXES = {"x": slice(8, 9), "y": slice(2, 4), "sparse": slice(76, 79), "more/z": slice(0, 2), "changed": slice(19, 20)}


def make(folder: Path) -> None:
    """Tensors of several blocks, some never written, some computed, some that a snapshot has; and one that is begun."""
    with tp.Fabric(folder) as fabric:
        for name, array in (("x", X), ("more/z", X[:6] + 9), ("changed", X + 7)):
            fabric.allocate(name, tp.TensorType({"row": len(array), "col": 3}, np.int32), chunks=(4, 2))
            fabric.write(name, array)
        fabric.apply(tp.Map(lambda a: a * 2, "r c -> r c"), "x", out="y", over={"row": tp.chunks(size=2)})
        fabric.allocate("sparse", tp.TensorType({"row": 200}, np.int32), chunks=(2,))
        for row in np.flatnonzero(SPARSE).tolist():
            fabric.write("sparse", SPARSE[row : row + 1], {"row": slice(row, row + 1)})
        fabric.snapshot("kept")
        fabric.write("changed", X[::-1])
        sink = fabric.create("begun").make((8,), np.int32, chunks=(2,))
        for start in (0, 4):
            sink.write(((start, start + 2),), np.full(2, 3, np.int32)).result()
        sink.flush()
        sink.close()


def looked_at(folder: Path) -> Counter[str]:
    """Read all of it: how often it was right, and how often an error of ours; anything else is raised."""
    seen = Counter[str]()
    _count(seen, lambda: _asked(folder, seen))
    return seen


def _asked(folder: Path, seen: Counter[str]) -> None:
    with tp.Fabric(folder) as fabric:
        _count(seen, lambda: _same(fabric.list(), tuple(sorted(NOW))))
        _count(seen, lambda: _same(fabric.snapshots(), ("kept",)))
        for name, array in NOW.items():
            _count(seen, lambda n=name, a=array: _same(fabric.read(n).tolist(), a.tolist()))
            _count(
                seen, lambda n=name, a=array: _same(fabric.read(n, {"row": BOXES[n]}).tolist(), a[BOXES[n]].tolist())
            )
            _count(seen, lambda n=name: fabric.describe(n))
        _count(seen, lambda: _same(np.asarray(fabric.array("y")).tolist(), NOW["y"].tolist()))
        _count(seen, lambda: _same(fabric.check("sparse"), ()))


def used(folder: Path) -> Counter[str]:
    """Go on with what was begun, write, restore, copy and delete, and read again."""
    seen = Counter[str]()
    _count(seen, lambda: _changed(folder, seen))
    return seen


def _changed(folder: Path, seen: Counter[str]) -> None:
    with tp.Fabric(folder) as fabric:
        _count(seen, lambda: _gone_on(fabric))
        _count(seen, lambda: _copied(fabric))
        _count(seen, lambda: _restored(fabric, seen))


def _gone_on(fabric: tp.Fabric) -> None:
    sink = fabric.create("begun").again((8,), np.int32)
    try:
        filled = sink.filled.boxes()
        for start in range(0, 8, 2):
            if not any(low <= start and start + 2 <= high for ((low, high),) in filled):
                sink.write(((start, start + 2),), np.full(2, 3, np.int32)).result()
        source = sink.finish()
        source.close()
    finally:
        sink.close()
    _same(fabric.read("begun").tolist(), [3] * 8)


def _copied(fabric: tp.Fabric) -> None:
    fabric.write("sparse", np.array([8], np.int32), {"row": slice(8, 9)})
    fabric.copy("x", {"row": slice(0, 3)}, "changed", {"row": slice(3, 6)})
    wanted, changed = SPARSE.copy(), X[::-1].copy()
    wanted[8], changed[3:6] = 8, X[:3]
    _same(fabric.read("sparse").tolist(), wanted.tolist())
    _same(fabric.read("changed").tolist(), changed.tolist())


def _restored(fabric: tp.Fabric, seen: Counter[str]) -> None:
    fabric.restore("kept")
    _same(fabric.list(), tuple(sorted(KEPT)))
    for name, array in KEPT.items():
        _count(seen, lambda n=name, a=array: _same(fabric.read(n).tolist(), a.tolist()))


class Wrong(Exception):
    """A catalogue that was damaged said what was never written."""


def _same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Wrong(f"{found!s:.300} instead of {wanted!s:.300}")


def _count(seen: Counter[str], ask: Callable[[], object]) -> None:
    try:
        ask()
        seen["right"] += 1
    except tp.TapestryError:
        seen["told"] += 1


def attack(original: Path, folder: Path, damage: Callable[[Path], object]) -> Counter[str]:
    """Damage a copy of a fabric, read and use it; what was only read has lost nothing, once its catalogue is put back.

    Raises:
      Wrong: for what was never written, and nobody told.
    """
    whole = (original / FILE).read_bytes()
    _fresh(original, folder)
    damage(folder / FILE)
    seen = looked_at(folder)
    for file in folder.glob(f"{FILE}*"):
        file.unlink()
    (folder / FILE).write_bytes(whole)
    if looked_at(folder)["told"]:
        raise Wrong("blocks are lost: they were taken for garbage")
    _fresh(original, folder)
    damage(folder / FILE)
    return seen + used(folder)


def _fresh(original: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
