"""What a monoid declares, asked of it: states that a kernel gives are merged in two ways that plans take for one.

A plan that cuts a scan takes `combine` for associative, stripes and rings take it for commutative, and a fold over the
mesh takes a frame and the parts of a product for what `combine` does. No program says so of itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from combinators.claims.cut import Boxed
from combinators.claims.draws import numbers_of, selects
from combinators.claims.fewer import few_of
from combinators.claims.running import Run, told
from combinators.claims.slopes import pullback
from combinators.declared.backward import has_stopped, has_written
from combinators.declared.compared import CLOSE, differ, tolerances
from combinators.declared.drawn import are_whole, drawn, moved, scaled, stay
from combinators.declared.runnable import is_large
from combinators.equations.deciding import compares
from combinators.frozen import dataclass

# Steps of a scan; blocks are small, so many are drawn.
_STEPS, _ROUNDS = 4, 4
# Sums that stop at some number are sums of small ones; where something is chosen, the number may be any.
_SCALES, _BETWEEN = (1, 10_000), (4, 30, 300, 0.1)
# It may stand in what merges: states are about as large, of so many such numbers that are further from one than others.
_SAID, _SHIFTING, _FAR, _FARTHEST = 4, ("add", "div", "rem", "sub"), 10, 1e10
# What is known by chance alone, or by an inverse that is none, is not known: so many draws have to differ.
_DIFFERING = 2

State = list[Any]
Merge = Callable[[Sequence[State]], State]


@dataclass(frozen=True)
class Claimed:
    """Two ways to merge states that should come to the same.

    Attributes:
      count: of states that are merged, the earliest first.
      one: from states to their combination.
      other: in another way.
    """

    count: int
    one: Merge
    other: Merge


def merges_otherwise(
    kernel: Boxed, claimed: Claimed, over: str | None = None, axes: Sequence[int] | None = None
) -> bool:
    """Whether the states that a kernel gives are known to come to something else when they are merged in another way.

    Args:
      kernel: a fold or a scan; its own way to merge is not asked.
      claimed: what it is held to.
      over: the dimension of a scan, each of whose steps is a state; None of a fold, whose blocks give one each.
      axes: of a scan, where `over` lies among the axes of each leaf; None of a fold.
    """
    sizes = few_of(kernel)
    if over is not None:
        sizes[over] = min(kernel.sizes[over], _STEPS)
        if sizes[over] < claimed.count:
            return False
    # What some cells come to may merge where single cells do not: sums that are never negative.
    cell = {**sizes, **dict.fromkeys(kernel.signature.fold_dims, 1)}
    return _fails(kernel, claimed, sizes, axes) or (cell != sizes and _fails(kernel, claimed, cell, axes))


def _fails(kernel: Boxed, claimed: Claimed, sizes: dict[str, int], axes: Sequence[int] | None) -> bool:
    program = kernel.at(sizes)
    if program is None or is_large(program):
        return False
    types = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in program.out_avals]
    if axes is not None:
        types = [_of_one(leaf, axis) for leaf, axis in zip(types, axes, strict=True)]
    merged = [_merged(kernel, merge, [types] * claimed.count) for merge in (claimed.one, claimed.other)]

    allowed = tolerances([program, *filter(None, merged)], CLOSE)
    choosing = list(filter(selects, filter(None, merged)))
    scales = (*_SCALES, *(_BETWEEN if choosing else ()), *_said(choosing))

    def asked(runs: Sequence[Run]) -> Iterator[bool]:
        run, one, other = runs
        draws = _draws(kernel, program, sizes, scales)
        for states, near, exact in _states(draws, run, axes, claimed.count):
            yield _differ(one, other, states, near, exact, allowed)

    if told([program, *merged], asked, _DIFFERING):
        return True
    # What merges to the same numbers has the same derivative, unless somebody wrote it.
    written = None not in merged and any(has_written(each) or has_stopped(each) for each in merged)
    return written and told([program, *map(pullback, merged)], asked, _DIFFERING)


def _said(programs: Sequence[Any]) -> Iterator[float]:
    """The numbers by which programs may choose, but for those of which products would leave the range of floats."""

    def said(of: Callable[[Any], bool]) -> set[float]:
        return {abs(each) for program in programs for each in numbers_of(program, of)}

    # What is added to states to divide by them is small, and no threshold.
    shifts = {each for each in said(lambda each: each.primitive.name in _SHIFTING) if each > _FAR}
    found = sorted(each for each in shifts | said(compares) if 1 / _FARTHEST < each < _FARTHEST)
    return itertools.islice((each for each in found if not 1 / _FAR <= each <= _FAR), _SAID)


def _merged(kernel: Boxed, merge: Merge, states: Sequence[Sequence[Any]]) -> Any:
    """The closed jaxpr from the leaves of states to what is compared; None where a monoid raises."""

    def run(*leaves: Any) -> list[Any]:
        left = iter(leaves)
        return list(kernel.show(merge([list(itertools.islice(left, len(state))) for state in states])))

    try:
        return jax.make_jaxpr(run)(*itertools.chain(*states))
    except Exception:  # noqa: BLE001 - a monoid may raise in any way, which is told where it runs
        return None


def _of_one(leaf: Any, axis: int) -> Any:
    """The type of one step."""
    return jax.ShapeDtypeStruct((*leaf.shape[:axis], 1, *leaf.shape[axis + 1 :]), leaf.dtype)


def _each(leaves: State, axes: Sequence[int] | None) -> list[State]:
    """The states that a block gives: one, or each of its steps."""
    if axes is None:
        return [leaves]
    steps = range(leaves[0].shape[axes[0]])
    pairs = list(zip(leaves, axes, strict=True))
    return [[leaf[(*[slice(None)] * axis, slice(step, step + 1))] for leaf, axis in pairs] for step in steps]


def _states(
    draws: Iterator[list[Any]], run: Any, axes: Sequence[int] | None, count: int
) -> Iterator[tuple[list[State], list[State], bool]]:
    """States to merge, nearly the same ones, and whether they are made of whole numbers alone."""
    listed: list[tuple[State, State, bool]] = []
    for arrays in draws:
        exact = are_whole(arrays)
        given, near = (_each(run(operands), axes) for operands in (arrays, list(map(moved, arrays))))
        listed += [(state, beside, exact) for state, beside in zip(given, near, strict=True)]
        for first in range(len(listed) - count + 1):
            group = listed[first : first + count]
            yield [state for state, _, _ in group], [state for _, state, _ in group], all(each for *_, each in group)
        listed = listed[len(listed) - count + 1 :]


def _draws(kernel: Boxed, program: Any, sizes: dict[str, int], scales: Sequence[float]) -> Iterator[list[Any]]:
    fixed = stay(kernel.signature, program)
    for scale in scales:
        for arrays in drawn(kernel.signature, program, sizes, _ROUNDS):
            yield [scaled(array, 1 if still else scale) for array, still in zip(arrays, fixed, strict=True)]


def _differ(
    one: Run, other: Run, states: list[State], near: list[State], exact: bool, allowed: Mapping[int, float]
) -> bool:
    leaves = list(itertools.chain(*states))

    def again(way: int) -> list[Any]:
        return other([moved(leaf, way) for leaf in leaves])

    return differ(one(leaves), other(leaves), one(list(itertools.chain(*near))), again, exact, allowed)
