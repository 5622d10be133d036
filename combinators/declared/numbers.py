"""The numbers of a program, by which one is told that reads how many cells its block has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.kernels.elementwise import CALLS
from combinators.kernels.jaxprs import is_literal, programs_inside

# Dimensions of which products of sizes are looked for among the numbers of a program.
_MOST_DIMS = 6


@dataclass(frozen=True)
class Step:
    """A primitive that a result depends on.

    Attributes:
      name: of the primitive.
      numbers: for each operand its magnitude where it is a finite real number in the program's text, else None.
    """

    name: str
    numbers: tuple[float | None, ...]


def steps_of(jaxpr: Any, used: Iterable[bool] | None = None) -> list[Step]:
    """The steps of a program that its results depend on, inner programs included, in an order of their own.

    Args:
      jaxpr: an open jaxpr.
      used: which of its results are asked for; None for all.
    """
    flags = [True] * len(jaxpr.outvars) if used is None else list(used)
    live = {atom for atom, flag in zip(jaxpr.outvars, flags, strict=True) if flag and not is_literal(atom)}
    found = list[Step]()
    # What no result depends on is no part of what the kernel gives: a mean that is only printed, or thrown away.
    for equation in reversed(jaxpr.eqns):
        needed = [out in live for out in equation.outvars]
        if any(needed):
            live.update(atom for atom in equation.invars if not is_literal(atom))
            found.extend(_inner(equation, needed))
            found.append(Step(equation.primitive.name, tuple(map(_number, equation.invars))))
    return found


def branches_of(equation: Any) -> list[Any]:
    """The branches of a `cond` that can be taken: one, where the program says itself which."""
    branches = list(equation.params["branches"])
    index = equation.invars[0]
    return branches if not is_literal(index) else [branches[min(max(int(index.val), 0), len(branches) - 1)]]


def _inner(equation: Any, needed: list[bool]) -> Iterator[Step]:
    name = equation.primitive.name
    for inner in branches_of(equation) if name == "cond" else programs_inside(equation):
        jaxpr = getattr(inner, "jaxpr", inner)
        alike = (name in CALLS or name == "cond") and len(jaxpr.outvars) == len(needed)
        yield from steps_of(jaxpr, needed if alike else None)


def _number(atom: Any) -> float | None:
    # Of real numbers alone: whole ones are places as well, which a lookup holds against the size.
    if not is_literal(atom) or atom.aval.ndim or not jnp.issubdtype(atom.aval.dtype, jnp.floating):
        return None
    value = float(atom.val)
    return abs(value) if math.isfinite(value) else None


def may_count(name: str, sizes: Mapping[str, int], steps: Iterable[Step]) -> bool:
    """Whether numbers of a program may be numbers of cells along a dimension, their inverses or roots."""
    found = {number for step in steps for number in step.numbers if number is not None} - {0.0, 1.0}
    rest = [size for other, size in sizes.items() if other != name][:_MOST_DIMS]
    for part in itertools.chain.from_iterable(itertools.combinations(rest, count) for count in range(len(rest) + 1)):
        cells = math.prod(part) * sizes[name]
        likely = (cells, cells - 1, 1 / cells, math.sqrt(cells), 1 / math.sqrt(cells)) if cells else ()
        if any(math.isclose(number, each, rel_tol=1e-3) for number in found for each in likely):
            return True
    return False


def differing(ours: list[Step], others: list[Step]) -> list[tuple[Step, Step]]:
    """The steps that compute with other numbers in programs of the same steps; of other steps nothing is said."""
    if [step.name for step in ours] != [step.name for step in others]:
        return []
    return [(own, other) for own, other in zip(ours, others, strict=True) if own != other]


def divides(own: Step, other: Step, cells: int) -> bool:
    """Whether a step divides by a number of cells, its root, or one less: `other` is the step with one cell more.

    One that multiplies by it counts cells, and counts of parts add up.
    """
    if own.name not in ("div", "mul"):
        return False
    changed = [(a, b) for a, b in zip(own.numbers, other.numbers, strict=True) if a != b]
    if len(changed) != 1 or not all(map(all, changed)) or (own.name == "div" and own.numbers[1] == other.numbers[1]):
        return False
    before, after = changed[0]
    growth = (before or 0) / (after or 1) if own.name == "mul" else (after or 0) / (before or 1)
    likely = (cells + 1) / cells, math.sqrt((cells + 1) / cells), cells / (cells - 1)
    return any(math.isclose(growth, each, rel_tol=1e-3) for each in likely)
