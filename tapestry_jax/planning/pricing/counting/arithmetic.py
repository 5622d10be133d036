"""FLOP of one equation, as XLA's own cost analysis counts them; loops and branches are counted by what is inside."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tapestry_jax.planning.pricing.counting.counts import TRANSCENDENTAL_WEIGHT, Counts
from tapestry_jax.planning.pricing.counting.opened import Step
from tapestry_jax.planning.pricing.counting.primitives import (
    INSIDE,
    MOVED,
    PRODUCTS,
    SLOW,
    TRANSCENDENTAL,
    is_reduction,
)

_WIDTH = 128
"""Of the arrays in which a TPU multiplies matrices."""


def arithmetic(step: Step, platform: str = "") -> Counts:
    """FLOP of one equation; of a loop or a branch none."""
    name, equation = step.name, step.equation
    made = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
    read = max((math.prod(getattr(atom.aval, "shape", ())) for atom in equation.invars), default=0)
    if name == "dot_general":
        contracted = _contracted(equation)
        found = _product(equation, 2.0 * made * contracted)
        return replace(found, idle=_idle(found, contracted, _sides(equation)) if platform == "tpu" else 0.0)
    if name == "conv_general_dilated":
        found = _product(equation, 2.0 * made * _kernel_cells(equation))
        return replace(found, idle=_idle(found, *_features(equation)) if platform == "tpu" else 0.0)
    if name in PRODUCTS:
        return _product(equation, 2.0 * made * equation.invars[0].aval.shape[-1])
    if name == "fft":
        lengths = equation.params["fft_lengths"]
        cells = max(made, read)
        return Counts(other=8.0 * cells * math.prod(math.ceil(math.log2(n)) if n > 1 else 0 for n in lengths))
    if name in MOVED or name in INSIDE or name.startswith("random_bits") or name == "pallas_call":
        return Counts()
    if name in TRANSCENDENTAL:
        return Counts(
            transcendental=float(made), slow=float(made) * (SLOW.get(name, 0.0) if platform == "tpu" else 0.0)
        )
    if is_reduction(name) or name in ("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"):
        return Counts(other=float(read))
    if name in ("sort", "top_k", "approx_top_k"):
        return Counts(other=read * max(math.log2(max(read, 2)), 1.0))
    if name in ("gather",):
        return Counts()
    if name.startswith("scatter"):
        updates = math.prod(equation.invars[-1].aval.shape)
        return Counts(other=float(updates) if name not in ("scatter",) else 0.0)
    if name == "integer_pow":
        return Counts(other=made * float(max(abs(equation.params["y"]).bit_length(), 1)))
    return Counts(other=float(made))


def operations(step: Step, platform: str = "") -> float:
    """Operations of an elementwise equation, its transcendentals by their weight."""
    counts = arithmetic(step, platform)
    return counts.other + TRANSCENDENTAL_WEIGHT * counts.transcendental + counts.slow


def _product(equation: Any, flops: float) -> Counts:
    kinds = [atom.aval.dtype for atom in equation.invars[:2]]
    widest = max(kinds, key=lambda kind: kind.itemsize)
    if widest.kind == "c":
        # Four real products and their sums.
        return Counts(products=((f"float{widest.itemsize * 4}", 4 * flops),))
    return Counts(products=((widest.name, flops),))


def _idle(counts: Counts, contracted: int, sides: tuple[int, int]) -> float:
    """What arrays of 128 x 128 could do beside: one of them holds a piece of an operand, the other one streams by."""
    waste = filled(contracted) * min(filled(side) for side in sides)
    return (waste - 1.0) * sum(flops for _, flops in counts.products)


def filled(size: int) -> float:
    """By how much a size grows up to the next multiple of the arrays' width."""
    return math.ceil(size / _WIDTH) * _WIDTH / size if size else 1.0


def _sides(equation: Any) -> tuple[int, int]:
    """The rows that the one and the other operand of a product bring."""
    (left, _), (batch, _) = equation.params["dimension_numbers"]
    shapes = [atom.aval.shape for atom in equation.invars[:2]]
    shared = math.prod(shapes[0][axis] for axis in (*left, *batch))
    rows, columns = (math.prod(shape) // max(shared, 1) for shape in shapes)
    return rows, columns


def _features(equation: Any) -> tuple[int, tuple[int, int]]:
    """The input features of a convolution's group, which are contracted, and its output features."""
    shape, spec = equation.invars[1].aval.shape, equation.params["dimension_numbers"].rhs_spec
    return shape[spec[1]], (shape[spec[0]], shape[spec[0]])


def is_by_vector(step: Step) -> bool:
    """Whether it is a product of a matrix by a vector, which TPUs multiply and sum on their vector units."""
    return step.name == "dot_general" and min(_sides(step.equation)) == 1


def _contracted(equation: Any) -> int:
    (left, _), _ = equation.params["dimension_numbers"]
    return math.prod(equation.invars[0].aval.shape[axis] for axis in left)


def _kernel_cells(equation: Any) -> int:
    """The products of one cell of a convolution's result: cells of the window times input features of a group."""
    shape = equation.invars[1].aval.shape
    spec = equation.params["dimension_numbers"].rhs_spec
    return math.prod(size for axis, size in enumerate(shape) if axis != spec[0])
