"""A fabric as it should be: a dictionary of NumPy arrays; and random operations on both."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import tapestry_jax as tp

NAMES = ("a", "b", "deep/c", "d-1", "é")
SIZES = (0, 1, 2, 3, 5, 7, 8)
DTYPES = ("float32", "float16", "bfloat16", "int8", "int32", "bool")
AXES = ("row", "col", None)


class Model:
    """Both sides, and every operation on both.

    Args:
      fabric: the one that is tested.
      seed: of what is drawn.
      programs: whether programs are applied, which compile for every new type.
    """

    def __init__(self, fabric: tp.Fabric, seed: int, programs: bool = False) -> None:
        self.fabric, self.draw, self.programs = fabric, random.Random(seed), programs
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.axes: dict[str, tuple[str | None, ...]] = {}
        self.snapshots: dict[str, dict[str, tuple[Any, Any]]] = {}

    def step(self) -> None:
        """One operation."""
        choices = [self.allocate, self.load, self.copy, self.copy, self.copy, self.write, self.delete]
        choices += [self.snapshot, self.restore, self.read] + [self.apply] * self.programs
        self.draw.choice(choices)()

    def compare(self) -> None:
        """Whether both are the same."""
        assert self.fabric.list() == tuple(sorted(self.arrays))
        for name, array in self.arrays.items():
            found, told = self.fabric.read(name), self.fabric.describe(name)
            assert (found.dtype, found.shape, told.type.names) == (array.dtype, array.shape, self.axes[name])
            assert found.tobytes() == array.tobytes(), name

    def allocate(self) -> None:
        name, shape, axes = self._new()
        dtype = np.zeros(0, tp.TensorType((), self.draw.choice(DTYPES)).dtype).dtype
        type = tp.TensorType.make(axes, shape, dtype)
        chunks = tuple(self.draw.choice((1, 2, 3, 8)) for _ in shape) if self.draw.random() < 0.7 else None
        taken = name in self.arrays
        overwrite = self.draw.random() < 0.5
        self._both(
            taken and not overwrite, lambda: self.fabric.allocate(name, type, chunks=chunks, overwrite=overwrite)
        )
        if not taken or overwrite:
            self.arrays[name], self.axes[name] = np.zeros(shape, dtype), axes

    def load(self) -> None:
        name, shape, axes = self._new()
        array = self._numbers(shape, self.draw.choice(DTYPES))
        self.fabric.load(name, array, names=axes, overwrite=True)
        self.arrays[name], self.axes[name] = array, axes

    def write(self) -> None:
        name = self._known()
        if name is not None:
            box = self._box(self.arrays[name].shape)
            array = self._numbers(tuple(b - a for a, b in box), self.arrays[name].dtype)
            self.fabric.write(name, array, box)
            self.arrays[name] = np.array(self.arrays[name])
            self.arrays[name][_slices(box)] = array

    def copy(self) -> None:
        source, target = self._known(), self._known()
        if source is None or target is None:
            return
        of, into = self.arrays[source], self.arrays[target]
        if of.ndim != into.ndim or any(a != b for a, b in zip(self.axes[source], self.axes[target], strict=True)):
            return
        sizes = [self.draw.randint(0, min(a, b)) for a, b in zip(of.shape, into.shape, strict=True)]
        starts = [self.draw.randint(0, a - n) for a, n in zip(of.shape, sizes, strict=True)]
        ends = [self.draw.randint(0, a - n) for a, n in zip(into.shape, sizes, strict=True)]
        boxes = [tuple((a, a + n) for a, n in zip(at, sizes, strict=True)) for at in (starts, ends)]
        cast = self.draw.random() < 0.7
        wrong = of.dtype != into.dtype and not cast
        self._both(wrong, lambda: self.fabric.copy(source, boxes[0], target, boxes[1], cast=cast))
        if not wrong:
            part = of[_slices(boxes[0])]
            self.arrays[target] = np.array(into)
            self.arrays[target][_slices(boxes[1])] = part != 0 if into.dtype == np.bool_ else part.astype(into.dtype)

    def read(self) -> None:
        name = self._known()
        if name is not None:
            box = self._box(self.arrays[name].shape)
            assert self.fabric.read(name, box).tobytes() == self.arrays[name][_slices(box)].tobytes()
            held = np.asarray(self.fabric.array(name))
            assert held.dtype == self.arrays[name].dtype and held.tobytes() == self.arrays[name].tobytes()

    def delete(self) -> None:
        name = self.draw.choice(NAMES)
        self._both(name not in self.arrays, lambda: self.fabric.delete(name))
        self.arrays.pop(name, None)

    def snapshot(self) -> None:
        name = self.draw.choice(("one", "two"))
        self._both(name in self.snapshots, lambda: self.fabric.snapshot(name))
        if name not in self.snapshots:
            self.snapshots[name] = {each: (array, self.axes[each]) for each, array in self.arrays.items()}
        elif self.draw.random() < 0.5:
            self.fabric.forget(name)
            del self.snapshots[name]

    def restore(self) -> None:
        name = self.draw.choice(("one", "two"))
        self._both(name not in self.snapshots, lambda: self.fabric.restore(name))
        if name in self.snapshots:
            self.arrays = {each: array for each, (array, _) in self.snapshots[name].items()}
            self.axes |= {each: axes for each, (_, axes) in self.snapshots[name].items()}

    def apply(self) -> None:
        name, out = self._known(), self.draw.choice(NAMES)
        if name is not None and self.arrays[name].dtype == np.int32:
            self.fabric.apply(_PLUS, name, out=out, overwrite=True)
            self.arrays[out], self.axes[out] = np.asarray(self.arrays[name] + np.int32(1)), self.axes[name]

    def _both(self, is_refused: bool, call: Callable[[], Any]) -> None:
        try:
            call()
        except tp.FabricError:
            assert is_refused
        else:
            assert not is_refused

    def _new(self) -> tuple[str, tuple[int, ...], tuple[str | None, ...]]:
        rank = self.draw.choice((0, 1, 2, 2))
        axes = self.draw.choice((AXES[:rank], (None,) * rank))
        return self.draw.choice(NAMES), tuple(self.draw.choice(SIZES) for _ in range(rank)), axes

    def _known(self) -> str | None:
        return self.draw.choice(sorted(self.arrays)) if self.arrays else None

    def _box(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple(tuple(sorted((self.draw.randint(0, n), self.draw.randint(0, n)))) for n in shape)  # type: ignore[misc]

    def _numbers(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        drawn = np.array([self.draw.randint(-9, 9) for _ in range(int(np.prod(shape)))]).reshape(shape)
        kind = tp.TensorType((), dtype).dtype
        return np.asarray(drawn > 0) if kind == np.bool_ else drawn.astype(kind)


_PLUS = tp.Map(lambda x: x + 1, "... -> ...", name="plus")


def _slices(box: tuple[tuple[int, int], ...]) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in box)
