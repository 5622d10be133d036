"""Convolutions and pooling: windows that overlap are maps, as the signatures of leaves write them."""

from __future__ import annotations

from typing import Any

from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.monoids import Sum
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.primitives import Bound, plain
from tapestry_jax.lifting.kernels.products import Products
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, signature, types_of


def _bare(name: str, whole: bool = False) -> Axis:
    return Axis("affine", (Term(name, 1, whole),))


def _window(name: str, step: int, dilation: int, low: int) -> Axis:
    return Axis("affine", (Term(name, step), Term(f"w_{name}", dilation, True)), -low)


def convolution(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Channels are folded, or whole where they are grouped; each axis of the image is read by windows."""
    params, (out,), told = plain(equation.params), types_of(equation), equation.params
    numbers = told["dimension_numbers"]
    if params is None or told["batch_group_count"] != 1:
        return None
    image, filters = (walk.shape(atom) for atom in atoms)
    grouped = told["feature_group_count"] != 1
    left: dict[int, Axis] = {numbers.lhs_spec[0]: _bare("b"), numbers.lhs_spec[1]: _bare("c", grouped)}
    right: dict[int, Axis] = {numbers.rhs_spec[0]: _bare("o", grouped)}
    right[numbers.rhs_spec[1]] = _bare("i" if grouped else "c", grouped)
    result: dict[int, Axis] = {numbers.out_spec[0]: _bare("b"), numbers.out_spec[1]: _bare("o", grouped)}
    sizes: dict[str, int] = {"o": filters[numbers.rhs_spec[0]]} if grouped else {}
    padding, modes = [(0, 0)] * len(told["window_strides"]), list[str]()
    for at, (step, (low, high)) in enumerate(zip(told["window_strides"], told["padding"], strict=True)):
        x, w, y = numbers.lhs_spec[2 + at], numbers.rhs_spec[2 + at], numbers.out_spec[2 + at]
        name = f"y{at}"
        right[w] = _bare(f"w_{name}", True)
        if int(told["lhs_dilation"][at]) != 1 or 0 in (image[x], out.shape[y]):
            left[x], result[y] = _bare(f"x{at}", True), _bare(name, True)
            padding[at] = (int(low), int(high))
            sizes[name] = out.shape[y]
        elif (filters[w], int(step), int(low), int(high)) == (1, 1, 0, 0):
            left[x], result[y] = _bare(name), _bare(name)
        else:
            left[x], result[y] = _window(name, int(step), int(told["rhs_dilation"][at]), int(low)), _bare(name)
            modes.append("zero")
            sizes[name] = out.shape[y]
    tensors = [Operand(tuple(axes[a] for a in range(len(axes)))) for axes in (left, right, result)]
    signed = signature(tensors[:2], tensors[2:])
    own = dict(params) | {"padding": tuple(padding)}
    folds = bool(signed.fold_dims)
    operation = Operation(
        signed,
        Products("conv_general_dilated", tuple(sorted(own.items()))),
        Sum if folds else None,
        sizes=tuple(sorted(sizes.items())),
        boundary=tuple(modes) if modes else "valid",
        pad=(0, 0) if folds else None,
        name="conv",
    )
    return walk.leaf(operation, atoms, [out])


def pooling(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Every axis with a window is read by it; padded ones are whole but in sums, where what is outside is zero."""
    params, (out,), told = plain(equation.params), types_of(equation), equation.params
    name, shape = equation.primitive.name, walk.shape(atoms[0])
    if params is None:
        return None
    left, result, sizes, modes = list[Axis](), list[Axis](), dict[str, int](), list[str]()
    padding = [(0, 0)] * len(shape)
    for axis, (size, step, (low, high)) in enumerate(
        zip(told["window_dimensions"], told["window_strides"], told["padding"], strict=True)
    ):
        y, padded = f"y{axis}", (int(low), int(high)) != (0, 0)
        if (int(size), int(step), padded) == (1, 1, False):
            left.append(_bare(y))
            result.append(_bare(y))
            continue
        sizes[y] = out.shape[axis]
        is_empty = 0 in (shape[axis], out.shape[axis])
        if int(told["base_dilation"][axis]) != 1 or (padded and name != "reduce_window_sum") or is_empty:
            left.append(_bare(f"x{axis}", True))
            result.append(_bare(y, True))
            padding[axis] = (int(low), int(high))
            continue
        left.append(_window(y, int(step), int(told["window_dilation"][axis]), int(low)))
        result.append(_bare(y))
        sizes[f"w_{y}"] = int(size)
        modes.append("zero" if padded else "valid")
    own = dict(params) | {"padding": tuple(padding)}
    operation = Operation(
        signature([Operand(tuple(left))], [Operand(tuple(result))]),
        Bound(name, tuple(sorted(own.items()))),
        sizes=tuple(sorted(sizes.items())),
        boundary=tuple(modes) if modes else "valid",
        name=name,
    )
    return walk.leaf(operation, atoms, [out])


TABLE = {"conv_general_dilated": convolution} | dict.fromkeys(
    ("reduce_window_sum", "reduce_window_max", "reduce_window_min"), pooling
)
