"""Classes of plans: of those that are alike, a run compiles the first, and `make thorough` compiles all.

What is alike is said by kinds: a plan all of whose kinds stood in plans before it, in this process, holds nothing new.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.plan import Plan
from tapestry_jax.shards.numeric.devices import is_collective
from tests.thoroughly import thoroughly

_MET: dict[str, set[Any]] = {}


def is_new(question: str, kinds: Iterable[Any]) -> bool:
    """Whether one of these kinds is met for the first time; in thorough tests all are looked at again."""
    met, found = _MET.setdefault(question, set()), set(kinds)
    if found <= met and not thoroughly():
        return False
    met.update(found)
    return True


def operations(jaxpr: Any) -> Iterator[Any]:
    """What the equations of a program are: names, options, and dtypes and ranks of what they take."""
    for equation in jaxpr.eqns:
        options = {
            name: value
            for name, value in equation.params.items()
            if isinstance(value, bool | str | enum.Enum | np.dtype)
        }
        operands = [variable.aval for variable in equation.invars]
        shapes = [(getattr(each, "dtype", None), getattr(each, "ndim", None)) for each in operands]
        yield equation.primitive.name, tuple(sorted(options.items(), key=str)), *shapes
        for inner in _inside(equation):
            yield from operations(inner)


def sending(jaxpr: Any, within: tuple[str, ...] = ()) -> Iterator[Any]:
    """What XLA or JAX could treat unlike with and without a gradient.

    Collectives, and the loops and conditions they stand in, since XLA moves them, over one mesh axis or several, whose
    order then matters; and functions with derivatives of their own, which compute their values in another way where
    they are differentiated.
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if is_collective(equation):
            yield within, name, len(_mesh_axes(equation)) > 1
        if name.startswith("custom_"):
            yield within, name, frozenset(kind for part in _inside(equation) for kind, *_ in operations(part))
        is_plain = name in ("jit", "pjit", "shard_map")
        for inner in _inside(equation):
            yield from sending(inner, within if is_plain else (*within, name))


def boundaries(plan: Plan) -> Iterator[Any]:
    """How arrays of true sizes enter and leave: of what rank, and which dimensions are cut, dealt and padded."""
    schedule = plan.schedule
    for side, numbers in (("in", schedule.inputs), ("out", schedule.outputs)):
        for slot in (schedule.slots[number] for number in numbers):
            shape, dtype = slot.type.shape, slot.type.dtype
            stored = slot.layout.padded_shape(shape, schedule.mesh)
            inexact = jax.numpy.issubdtype(dtype, np.inexact)
            yield (
                side,
                inexact,
                tuple(
                    (cut is not None and (len(cut.axes), cut.striped), size != padded)
                    for cut, size, padded in zip(slot.layout.cuts, shape, stored, strict=True)
                ),
            )


def _mesh_axes(equation: Any) -> tuple[str, ...]:
    found = equation.params.get("axes", equation.params.get("axis_name", ()))
    return (found,) if isinstance(found, str) else tuple(found)


def _inside(equation: Any) -> Iterator[Any]:
    for inner in programs_inside(equation):
        yield getattr(inner, "jaxpr", inner)
