"""The numbers of a program, by which one is told that reads how many cells its block has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.frozen import dataclass
from combinators.kernels.elementwise import CALLS
from combinators.kernels.jaxprs import is_literal, programs_inside

# Dimensions of which products of sizes are looked for among the numbers of a program.
_MOST_DIMS = 6


# Numbers of a program may have been rounded, at most to bfloat16 twice; what may be one is looked at a second time.
_ROUNDING = 2.0**-7

# What is computed of numbers alone is a number of the program as well: `sqrt 7.0`, and the choice of a branch.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "clamp": np.clip,
    "convert_element_type": np.asarray,
    "div": np.true_divide,
    "exp": np.exp,
    "integer_pow": np.power,
    "log": np.log,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "neg": np.negative,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sub": np.subtract,
}


@dataclass(frozen=True)
class Step:
    """A primitive that a result depends on.

    Attributes:
      name: of the primitive.
      numbers: for each operand its magnitude where it is a finite real number that the program says, else None.
      is_number: whether what it gives is a number that the program says.
    """

    name: str
    numbers: tuple[float | None, ...]
    is_number: bool = False


def steps_of(jaxpr: Any, used: Iterable[bool] | None = None, given: Mapping[Any, Any] | None = None) -> list[Step]:
    """The steps of a program that its results depend on, inner programs included, in an order of their own.

    Args:
      jaxpr: an open jaxpr.
      used: which of its results are asked for; None for all.
      given: those of its operands that are numbers.
    """
    flags = [True] * len(jaxpr.outvars) if used is None else list(used)
    live = {atom for atom, flag in zip(jaxpr.outvars, flags, strict=True) if flag and not is_literal(atom)}
    known, found = said(jaxpr, given or {}), list[Step]()
    # What no result depends on is no part of what the kernel gives: a mean that is only printed, or thrown away.
    for equation in reversed(jaxpr.eqns):
        needed = [out in live for out in equation.outvars]
        if any(needed):
            live.update(atom for atom in equation.invars if not is_literal(atom))
            found.extend(_inner(equation, needed, known))
            numbers = tuple(_real(atom, known) for atom in equation.invars)
            found.append(Step(equation.primitive.name, numbers, equation.outvars[0] in known))
    return found


def said(jaxpr: Any, given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The numbers that a program says, by their variables: what it computes of its literals alone.

    Args:
      jaxpr: an open jaxpr.
      given: those of its operands that are numbers.
    """
    known = dict(given)
    for equation in jaxpr.eqns:
        values = [number_of(atom, known) for atom in equation.invars]
        if all(value is not None for value in values):
            known.update(zip(equation.outvars, _numbers(equation, values), strict=False))
    return {atom: value for atom, value in known.items() if value is not None}


def number_of(atom: Any, known: Mapping[Any, Any]) -> Any:
    """The number that an operand is; None where the program does not say it, or it is no single real number."""
    value = atom.val if is_literal(atom) else known.get(atom)
    is_one = value is not None and not np.shape(value) and isinstance(value, (bool, int, float, np.generic, np.ndarray))
    return value if is_one and _is_real(np.result_type(value)) else None


def branches_of(equation: Any, known: Mapping[Any, Any]) -> list[Any]:
    """The branches of a `cond` that can be taken: one, where the program says itself which."""
    branches = list(equation.params["branches"])
    index = number_of(equation.invars[0], known)
    return branches if index is None else [branches[min(max(int(index), 0), len(branches) - 1)]]


def _numbers(equation: Any, values: Sequence[Any]) -> list[Any]:
    name: str = equation.primitive.name
    inner = list(programs_inside(equation))
    if name in CALLS and inner:
        jaxpr = getattr(inner[0], "jaxpr", inner[0])
        if len(jaxpr.invars) != len(values):
            return []
        known = said(jaxpr, dict(zip(jaxpr.invars, values, strict=True)))
        return [number_of(atom, known) for atom in jaxpr.outvars]
    if name not in _ON_NUMBERS or equation.outvars[0].aval.ndim:
        return []
    values = [_wide(value, atom.aval.dtype) for value, atom in zip(values, equation.invars, strict=True)]
    if name == "integer_pow":
        values = (*values, equation.params["y"])
    elif name == "clamp":
        values = (values[1], values[0], values[2])
    with np.errstate(all="ignore"):
        return [np.asarray(_ON_NUMBERS[name](*values)).astype(equation.outvars[0].aval.dtype)]


def _is_real(dtype: Any) -> bool:
    # NumPy itself does not tell that bfloat16 is a float.
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating))


def _wide(value: Any, dtype: Any) -> Any:
    """A number in a type that NumPy computes with."""
    narrow = np.dtype(dtype).kind == "V"
    return np.asarray(value, (np.float32 if jnp.issubdtype(dtype, jnp.floating) else np.int32) if narrow else dtype)


def _inner(equation: Any, needed: list[bool], known: Mapping[Any, Any]) -> Iterator[Step]:
    name = equation.primitive.name
    for inner in branches_of(equation, known) if name == "cond" else programs_inside(equation):
        jaxpr = getattr(inner, "jaxpr", inner)
        alike = (name in CALLS or name == "cond") and len(jaxpr.outvars) == len(needed)
        atoms = equation.invars[1:] if name == "cond" else equation.invars
        takes = zip(jaxpr.invars, atoms, strict=False) if alike and len(jaxpr.invars) == len(atoms) else ()
        given = {inside: value for inside, atom in takes if (value := number_of(atom, known)) is not None}
        yield from steps_of(jaxpr, needed if alike else None, given)


def _real(atom: Any, known: Mapping[Any, Any]) -> float | None:
    # Of real numbers alone: whole ones are places as well, which a lookup holds against the size.
    if atom.aval.ndim or not jnp.issubdtype(atom.aval.dtype, jnp.floating):
        return None
    value = number_of(atom, known)
    return abs(float(value)) if value is not None and math.isfinite(value) else None


def may_count(name: str, sizes: Mapping[str, int], steps: Iterable[Step]) -> bool:
    """Whether numbers of a program may be numbers of cells along a dimension, their inverses or roots."""
    found = {number for step in steps for number in step.numbers if number is not None} - {0.0, 1.0}
    rest = [size for other, size in sizes.items() if other != name][:_MOST_DIMS]
    for part in itertools.chain.from_iterable(itertools.combinations(rest, count) for count in range(len(rest) + 1)):
        cells = math.prod(part) * sizes[name]
        likely = (cells, cells - 1, 1 / cells, math.sqrt(cells), 1 / math.sqrt(cells)) if cells else ()
        if any(math.isclose(number, each, rel_tol=_ROUNDING) for number in found for each in likely):
            return True
    return False


def more_than(size: int) -> tuple[int, int]:
    """Sizes at which a program is held to that of `size`: one cell more, and, where floats do not tell one, twice."""
    return size + 1, 2 * size


def differing(ours: list[Step], others: list[Step]) -> list[tuple[Step, Step]]:
    """The steps that compute with other numbers in programs of the same steps; of other steps nothing is said.

    What gives a number is none of them: where it is another one, so is what is computed with it.
    """
    if [step.name for step in ours] != [step.name for step in others]:
        return []
    return [(own, other) for own, other in zip(ours, others, strict=True) if own != other and not own.is_number]


def divides(own: Step, other: Step, cells: int, more: int) -> bool:
    """Whether a step divides by a number of cells, its root, or one less: `other` is the step where there are more.

    One that multiplies by it counts cells, and counts of parts add up: of many cells that number hardly grows, so which
    of the two is greater tells them apart.
    """
    if own.name not in ("div", "mul"):
        return False
    changed = [(a, b) for a, b in zip(own.numbers, other.numbers, strict=True) if a != b]
    if len(changed) != 1 or not all(map(all, changed)) or (own.name == "div" and own.numbers[1] == other.numbers[1]):
        return False
    before, after = changed[0]
    growth = (before or 0) / (after or 1) if own.name == "mul" else (after or 0) / (before or 1)
    ratios = more / cells, (more - 1) / (cells - 1)
    likely = *ratios, *map(math.sqrt, ratios)
    return growth > 1 and any(math.isclose(growth, each, rel_tol=_ROUNDING) for each in likely)
