"""Axes that are split, backwards, strided, moved and overlapping, at random: what a signature says, and kernels.

`python -m tests.pairs.axes SEED COUNT` draws signatures, computes what they say by gathers in NumPy, and holds
kernels against it that do that, or something else: one that does must run, unplanned and under plans, and give it; one
that does not must be refused, or give under a plan what it gives without one.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tests.simulated.evaluate import simulated

Sizes = Mapping[str, int]
FUNCTIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, m: m.sin(x) + 1.5,
    lambda x, m: x * 0.5 + 1,
    lambda x, m: m.cos(x),
)
ANYWHERE = ("rolled", "flipped", "counted", "placed", "branched")


@dataclass(frozen=True)
class Drawn:
    """An axis: terms `coefficient * dimension` and an offset, or dimensions that are composed, the outer one first."""

    terms: tuple[tuple[int, str], ...] = ()
    offset: int = 0
    composed: tuple[str, ...] = ()

    @property
    def dims(self) -> tuple[str, ...]:
        return self.composed or tuple(dim for _, dim in self.terms)

    def text(self, whole: Sequence[str]) -> str:
        names = {dim: f"[{dim}]" if dim in whole else dim for dim in self.dims}
        if self.composed:
            return f"({' '.join(names[dim] for dim in self.composed)})"
        if self.terms[0][0] == 1 and len(self.terms) == 1 and not self.offset:
            return names[self.terms[0][1]]
        signed = [f"{'-' if k < 0 else '+'}{'' if abs(k) == 1 else f'{abs(k)}*'}{names[dim]}" for k, dim in self.terms]
        return f"({''.join(([str(self.offset)] if self.offset else []) + signed).removeprefix('+')})"

    def cells(self, sizes: Sizes, dims: Sequence[str], *, of_block: bool) -> Any:
        """What is read at each place of the grid of `dims`; counted from where a block begins, or from the tensor."""
        along = {dim: np.arange(sizes[dim]).reshape([-1 if d == dim else 1 for d in dims]) for dim in self.dims}
        if self.composed:
            outer, inner = self.composed
            return along[outer] * sizes[inner] + along[inner]
        read = sum(k * along[dim] for k, dim in self.terms)
        return read - self.lowest(sizes) if of_block else read + self.offset

    def lowest(self, sizes: Sizes) -> int:
        return sum(min(0, k * (sizes[dim] - 1)) for k, dim in self.terms)

    def highest(self, sizes: Sizes) -> int:
        return self.offset + sum(max(0, k * (sizes[dim] - 1)) for k, dim in self.terms)


@dataclass(frozen=True)
class Case:
    """A signature and the sizes of its dimensions: mapped, folded by a sum, or whole and summed.

    Attributes:
      sizes: of all dimensions.
      folded: those that are folded.
      whole: those that are whole.
      operands: their axes.
      result: its axes.
      shapes: of the operands, which may hold more cells than are read.
    """

    sizes: Sizes
    folded: tuple[str, ...]
    whole: tuple[str, ...]
    operands: tuple[tuple[Drawn, ...], ...]
    result: tuple[Drawn, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def summed(self) -> tuple[str, ...]:
        return self.folded + self.whole

    @property
    def mapped(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.sizes if dim not in self.summed)

    @property
    def inner(self) -> dict[str, int]:
        """The sizes that have to be told: of the inner dimensions of compositions."""
        return {axis.composed[1]: self.sizes[axis.composed[1]] for op in self.operands for axis in op if axis.composed}

    @property
    def mistakes(self) -> list[str]:
        """What a kernel may do wrong: with axes that are there, and with any."""
        axes = [axis for axes in self.operands for axis in axes]
        possible = {
            "forward": any(k < 0 for axis in axes for k, _ in axis.terms),
            "first": any(abs(k) > 1 for axis in axes if len(axis.terms) == 1 for k, _ in axis.terms),
            "swapped": any(axis.composed for axis in axes),
            "result": any(axis.composed for axis in self.result),
        }
        return [name for name, there in possible.items() for _ in range(2 * there)] + list(ANYWHERE)

    def __str__(self) -> str:
        listed = [" ".join(axis.text(self.whole) for axis in axes) for axes in (*self.operands, self.result)]
        return f"{', '.join(listed[:-1])} -> {listed[-1]}"

    def presented(self, grid: Any, sizes: Sizes, m: Any, *, swapped: bool = False) -> Any:
        """The result of an array over the grid of all dimensions."""
        dims = list(self.sizes)
        grid = m.broadcast_to(grid, [sizes[dim] for dim in dims])
        grid = grid.sum(tuple(map(dims.index, self.summed))) if self.summed else grid
        order = [dim for axis in self.result for dim in (axis.dims[::-1] if swapped else axis.dims)]
        grid = m.transpose(grid, [self.mapped.index(dim) for dim in order])
        return grid.reshape([int(np.prod([sizes[dim] for dim in axis.dims])) for axis in self.result])

    def said(self, arrays: Sequence[Any]) -> Any:
        """What the signature says, by gathers in NumPy."""
        grid: Any = 1.0
        for axes, array, function in zip(self.operands, arrays, FUNCTIONS, strict=False):
            cells = [axis.cells(self.sizes, list(self.sizes), of_block=False) for axis in axes]
            grid = grid * function(array[tuple(np.broadcast_arrays(*cells))], np)
        return self.presented(grid, self.sizes, np)

    def sizes_of(self, blocks: Sequence[Any]) -> dict[str, int]:
        """The sizes of a box, from the shapes of its blocks."""
        sizes = dict(self.inner)
        pairs = [
            pair
            for axes, block in zip(self.operands, blocks, strict=True)
            for pair in zip(axes, block.shape, strict=True)
        ]
        for _ in range(3):
            for axis, cells in pairs:
                if axis.composed:
                    sizes[axis.composed[0]] = cells // sizes[axis.composed[1]]
                elif all(dim in sizes for _, dim in axis.terms[1:]):
                    (k, first), *others = axis.terms
                    sizes[first] = (cells - 1 - sum(abs(c) * (sizes[dim] - 1) for c, dim in others)) // abs(k) + 1
        return {dim: sizes[dim] for dim in self.sizes}


def draw_case(rng: random.Random) -> Case:
    """One to three dimensions on one to three operands."""
    dims = list("tuvw")[: rng.choice([1, 2, 2, 3])]
    sizes = {dim: rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 11]) for dim in dims}
    roles = {dim: rng.choice(["map"] * 5 + ["fold", "whole"]) for dim in dims}
    if "map" not in roles.values():
        roles[dims[0]] = "map"
    left, axes = rng.sample(dims, len(dims)), list[Drawn]()
    while left:
        kind = rng.choice(["one", "one", "one", "two", "composed", "composed"])
        count = 1 if kind == "one" else 2
        taken = [left.pop() for _ in range(min(count, len(left)))]
        if kind == "composed" and len(taken) == 2:
            axes.append(Drawn(composed=(taken[0], taken[1])))
            continue
        terms = tuple((rng.choice([1, 1, -1, -1, 2, 3, -2]), dim) for dim in taken)
        low = Drawn(terms).lowest(sizes)
        # Of a dimension that is read backwards the offset decides how many cells it has.
        axes.append(Drawn(terms, -low + (rng.choice([0, 0, 1, 2]) if terms[0][0] > 0 else 0)))
    operands = [tuple(axes[:1]), tuple(axes[1:])] if len(axes) > 1 and rng.random() < 0.3 else [tuple(axes)]
    if known := [Drawn(((1, dim),)) for axis in axes for _, dim in axis.terms[1:]]:
        operands.append(tuple(known))
    mapped, result = [dim for dim in dims if roles[dim] == "map"], list[Drawn]()
    rng.shuffle(mapped)
    folds = tuple(dim for dim in dims if roles[dim] == "fold")
    while mapped:
        # Folds give bare dimensions.
        if len(mapped) > 1 and not folds and rng.random() < 0.35:
            result.append(Drawn(composed=(mapped.pop(), mapped.pop())))
        else:
            result.append(Drawn(((1, mapped.pop()),)))

    def cells(axis: Drawn) -> int:
        if axis.composed:
            return sizes[axis.composed[0]] * sizes[axis.composed[1]]
        k = axis.terms[0][0]
        return axis.highest(sizes) + 1 + (rng.choice([0, 0, 1, 3]) if k < 0 else rng.randrange(k))

    shapes = tuple(tuple(map(cells, axes)) for axes in operands)
    whole = tuple(dim for dim in dims if roles[dim] == "whole")
    return Case(sizes, folds, whole, tuple(operands), tuple(result), shapes)


def kernel_of(case: Case, mistake: str | None, dim: str, *, gathers: bool) -> Callable[..., Any]:
    """A kernel of a case, or one with a mistake, along the dimension `dim` where it is along one."""
    dims = list(case.sizes)

    def slices(block: Any, axes: Sequence[Drawn], sizes: Sizes) -> Any:
        found: list[str] = []
        for at, axis in reversed(list(enumerate(axes))):
            before, behind = block.shape[:at], block.shape[at + 1 :]
            if axis.composed:
                outer, inner = (sizes[each] for each in axis.composed)
                swapped = mistake == "swapped"
                block = block.reshape(*before, *((inner, outer) if swapped else (outer, inner)), *behind)
                block = jnp.swapaxes(block, at, at + 1) if swapped else block
            elif len(axis.terms) == 1:
                ((k, name),) = axis.terms
                block = jnp.flip(block, at) if k < 0 and mistake != "forward" else block
                step = (slice(sizes[name]),) if mistake == "first" else (slice(None, None, abs(k)),)
                block = block[(slice(None),) * at + step]
            else:
                cells = _read(axis, sizes, axis.dims)
                block = jnp.take(block, cells.ravel(), axis=at).reshape(*before, *cells.shape, *behind)
            found = [*axis.dims, *found]
        order = sorted(range(len(found)), key=lambda place: dims.index(found[place]))
        shape = [sizes[each] if each in found else 1 for each in dims]
        return block.transpose(order).reshape(shape)

    def _read(axis: Drawn, sizes: Sizes, grid: Sequence[str]) -> Any:
        if mistake == "forward":
            axis = Drawn(tuple((abs(k), name) for k, name in axis.terms), 0, axis.composed)
        if mistake == "swapped":
            axis = Drawn(axis.terms, axis.offset, axis.composed[::-1])
        return axis.cells(sizes, grid, of_block=True)

    def kernel(*blocks: Any) -> Any:
        sizes, grid = case.sizes_of(blocks), 1.0
        for axes, block, function in zip(case.operands, blocks, FUNCTIONS, strict=False):
            cells = tuple(np.broadcast_arrays(*(_read(axis, sizes, dims) for axis in axes)))
            grid = grid * function(block[cells] if gathers else slices(block, axes, sizes), jnp)
        at, size = dims.index(dim), sizes[dim]
        grid = jnp.broadcast_to(grid, [sizes[each] for each in dims])
        places = jnp.arange(size).reshape([-1 if each == dim else 1 for each in dims])
        wrong = {
            "rolled": lambda: jnp.roll(grid, 1, at),
            "flipped": lambda: jnp.flip(grid, at),
            "counted": lambda: grid * size,
            "placed": lambda: grid + places,
            "branched": lambda: grid if size == case.sizes[dim] else -grid,
        }
        grid = wrong[mistake]() if mistake in wrong else grid
        return case.presented(grid, sizes, jnp, swapped=mistake == "result")

    return kernel


def plans(case: Case, rng: random.Random) -> list[dict[str, Any]]:
    """Entries, one to three, that cut a dimension."""
    items = ("a", tp.chunks(2), tp.chunks(3), ("a", tp.chunks(2)), tp.striped("a"), tp.chunks(size=1))
    listed: list[dict[str, Any]] = [{dim: item} for dim in (*case.mapped, *case.folded) for item in items]
    both = [dict(zip(case.mapped, ("a", "b"), strict=False))] if len(case.mapped) > 1 else []
    return [*both, *rng.sample(listed, 2)]


def check(seed: str) -> Counter[str]:
    """What came of one case; verdicts in capitals are faults, with the case behind them."""
    rng = random.Random(seed)
    case, found = draw_case(rng), Counter[str]()
    mistake = rng.choice(case.mistakes) if rng.random() < 0.6 else None
    kernel = kernel_of(case, mistake, rng.choice(case.mapped), gathers=rng.random() < 0.3)
    arrays = [np.random.default_rng(rng.randrange(1 << 30)).normal(size=shape) for shape in case.shapes]
    what = f"{seed}: {case} of {dict(case.sizes)}, {mistake or 'as it says'}"
    made = (lambda *args, **of: tp.Reduce(*args, tp.monoids.Sum, **of)) if case.folded else tp.Map
    try:
        arrow = made(kernel, str(case), sizes=case.inner, name="op")
        graph = tp.trace(arrow, *arrays)
    except tp.SignatureError:
        found["refused where it is traced" if mistake else f"TRUE AND REFUSED {what}"] += 1
        return found
    plain, wanted = np.asarray(simulated(arrow, *arrays)), case.said(arrays)
    says = plain.shape == wanted.shape and np.allclose(plain, wanted, rtol=1e-9, atol=1e-9)
    if not mistake and not says:
        found[f"UNPLANNED AND WRONG {what}"] += 1
        return found
    for entries in plans(case, rng):
        a = rng.choice([2, 2, 3, 4, 5, 8])
        try:
            run = tp.plan(graph, tp.mesh(a=a, b=2 if a < 5 else 1), entries).compile()
            got = np.asarray(simulated(run, *arrays))
        except tp.PlanError:
            found["no plan"] += 1
        except tp.KernelError:
            found["refused by a plan" if mistake else f"TRUE AND REFUSED {what}, {entries} of {a}"] += 1
        else:
            equal = got.shape == plain.shape and np.allclose(got, plain, rtol=1e-9, atol=1e-9)
            kind = (
                "true" if not mistake else "false, and the same numbers" if says else "false, and the same under plans"
            )
            found[kind if equal else f"ACCEPTED AND WRONG {what}, {entries} of {a}"] += 1
    return found


def main() -> None:
    seed, count, begun = sys.argv[1], int(sys.argv[2]), time.process_time()
    jax.config.update("jax_num_cpu_devices", 8)
    found = Counter[str]()
    with jax.enable_x64(True):
        for number in range(count):
            found += check(f"{seed}/{number}")
    print(*(f"{times:5}  {kind}" for kind, times in sorted(found.items())), sep="\n")
    print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
