"""A kernel's program with its calls opened, without what nobody reads: what counting walks over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal
from tapestry_jax.planning.folding.sent import nbytes
from tapestry_jax.planning.pricing.counting.primitives import CALLS, SAME


@dataclass(frozen=True, eq=False)
class Step:
    """An equation, its calls opened: `reads` and `makes` are variables of the outermost program that reaches."""

    name: str
    reads: tuple[Any, ...]
    makes: tuple[Any, ...]
    equation: Any


@dataclass(frozen=True, eq=False)
class Program:
    """A program opened; `types` holds the bytes of values.

    Attributes:
      steps: in order, those that results depend on.
      inputs: its arguments.
      outputs: keys of its results; None of what is written in it.
      types: bytes of values.
      platform: whose compiler fuses it.
    """

    steps: list[Step]
    inputs: list[Any]
    outputs: list[Any]
    types: dict[Any, Any]
    platform: str = ""


def opened(jaxpr: Any, platform: str = "") -> Program:
    """A program with its calls opened, without what nobody reads; `types` holds the bytes of values."""
    steps: list[Step] = []
    sizes: dict[Any, Any] = {}
    inputs = list(jaxpr.invars)
    known: dict[Any, Any] = {}
    sizes.update((variable, nbytes(variable.aval)) for variable in inputs)
    outputs = _open(jaxpr, known, steps, sizes)
    return Program(needed(steps, outputs), inputs, outputs, sizes, platform)


def needed(steps: Sequence[Step], outputs: Sequence[Any]) -> list[Step]:
    """The steps that outputs depend on."""
    wanted = {key for key in outputs if key is not None}
    kept: list[Step] = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.makes):
            wanted.update(step.reads)
            kept.append(step)
    return kept[::-1]


def _open(jaxpr: Any, known: dict[Any, Any], steps: list[Step], sizes: dict[Any, Any]) -> list[Any]:
    """Append the equations of a program; `known` says what its variables are outside. Returns the keys of its results.

    A program may be called several times, so what it makes gets new keys.
    """

    def key(atom: Any) -> Any:
        return None if is_literal(atom) else known.get(atom, atom)

    sizes.update((variable, nbytes(variable.aval)) for variable in jaxpr.constvars)
    for equation in jaxpr.eqns:
        inner = _called(equation)
        if inner is not None and len(inner.invars) == len(equation.invars):
            inside = dict(zip(inner.invars, map(key, equation.invars), strict=True))
            known.update(zip(equation.outvars, _open(inner, inside, steps, sizes), strict=True))
            continue
        moves = equation.primitive.name == "transpose" and _is_copied(equation, key(equation.invars[0]), steps)
        if equation.primitive.name in SAME and len(equation.invars) == len(equation.outvars) and not moves:
            known.update(zip(equation.outvars, map(key, equation.invars), strict=True))
            continue
        made: list[Any] = []
        for variable in equation.outvars:
            known[variable] = fresh = object()
            sizes[fresh] = nbytes(variable.aval)
            made.append(fresh)
        reads = tuple(found for found in map(key, equation.invars) if found is not None)
        steps.append(Step(equation.primitive.name, reads, tuple(made), equation))
    return [key(atom) for atom in jaxpr.outvars]


def _is_copied(equation: Any, key: Any, steps: Sequence[Step]) -> bool:
    """Whether a transposition tears apart the dimensions of a product's result that one of its operands brings.

    Products write those of the one operand before or behind those of the other as is asked; another order is a copy.
    """
    maker = next((step for step in reversed(steps) if key in step.makes), None)
    if maker is None or maker.name != "dot_general":
        return False
    (left, _), (batch, _) = maker.equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    rows = len(maker.equation.invars[0].aval.shape) - len(left) - len(batch)
    of = [0] * len(batch) + [1] * rows + [2] * (len(shape) - len(batch) - rows)
    order = [axis for axis in equation.params["permutation"] if shape[axis] > 1]
    parts = [part for part, _ in itertools.groupby(of[axis] for axis in order)]
    inside = all([a for a in order if of[a] == part] == sorted(a for a in order if of[a] == part) for part in parts)
    return not inside or len(parts) > len(set(parts))


def _called(equation: Any) -> Any:
    if equation.primitive.name not in CALLS:
        return None
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner)
