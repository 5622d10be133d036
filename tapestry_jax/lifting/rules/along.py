"""Primitives that need some axes whole and treat every other one cell by cell: sorting, transforms, factorisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapestry_jax.lifting.kernels.primitives import Bound, plain
from tapestry_jax.lifting.kernels.resized import Resized
from tapestry_jax.lifting.rules.named import apply, plain_names
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of

Whole = Callable[[dict[str, Any], int], "set[int]"]
"""Parameters and rank to the axes that are whole."""


def along(which: Whole) -> Any:
    """The rule of a primitive whose operands and results have the same axes but for those that are whole."""

    def rule(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
        params, outs = plain(equation.params), types_of(equation)
        ranks = {len(walk.shape(atom)) for atom in atoms}
        if params is None or len(ranks) != 1:
            return None
        whole = which(equation.params, ranks.pop())
        operands = [(atom, _names(walk.shape(atom), whole, f"o{n}_")) for n, atom in enumerate(atoms)]
        results = [(out, _result(out.shape, whole, walk, atoms, n)) for n, out in enumerate(outs)]
        return _written(walk, equation, Bound(equation.primitive.name, params), operands, results)

    return rule


def matrices(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Factorisations and solutions: the last two axes are whole, those before are a batch."""
    params, outs = plain(equation.params), types_of(equation)
    batch = walk.shape(atoms[0])[:-2]
    tensors = [walk.shape(atom) for atom in atoms] + [out.shape for out in outs]
    if params is None or any(tuple(shape[: len(batch)]) != tuple(batch) for shape in tensors):
        return None
    lead = set(range(len(batch)))

    def names(shape: Sequence[int], prefix: str) -> list[str]:
        return [f"d{axis}" if axis in lead else f"{prefix}{axis}" for axis in range(len(shape))]

    operands = [(atom, names(walk.shape(atom), f"o{n}_")) for n, atom in enumerate(atoms)]
    results = [(out, names(out.shape, f"r{n}_")) for n, out in enumerate(outs)]
    return _written(walk, equation, Bound(equation.primitive.name, params), operands, results)


def pad(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes that grow or shrink are whole."""
    params, (out,) = plain(equation.params), types_of(equation)
    if params is None:
        return None
    whole = {axis for axis, c in enumerate(equation.params["padding_config"]) if tuple(map(int, c)) != (0, 0, 0)}
    shape = walk.shape(atoms[0])
    operands = [(atoms[0], _names(shape, whole, "o")), (atoms[1], [])]
    results = [(out, _names(out.shape, whole, "r"))]
    return _written(walk, equation, Bound("pad", params), operands, results)


def dynamic_slice(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes that are taken whole are free: their position has no say."""
    params, (out,), shape = plain(equation.params), types_of(equation), walk.shape(atoms[0])
    if params is None or len(atoms) != 1 + len(shape):
        return None
    whole = {axis for axis, size in enumerate(out.shape) if size != shape[axis]}
    free = tuple(axis for axis in range(len(shape)) if axis not in whole)
    kernel = Resized("dynamic_slice", params, "slice_sizes", 0, free)
    operands = [(atoms[0], _names(shape, whole, "o")), *((atom, list[str]()) for atom in atoms[1:])]
    return _written(walk, equation, kernel, operands, [(out, _names(out.shape, whole, "r"))])


def dynamic_update_slice(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes along which the update is as long as the operand are free."""
    params, (out,), shape = plain(equation.params), types_of(equation), walk.shape(atoms[0])
    update = walk.shape(atoms[1])
    if params is None or len(atoms) != 2 + len(shape):
        return None
    whole = {axis for axis, size in enumerate(update) if size != shape[axis]}
    operands = [(atoms[0], _names(shape, whole, "r")), (atoms[1], _names(update, whole, "u"))]
    operands += [(atom, list[str]()) for atom in atoms[2:]]
    kernel = Bound("dynamic_update_slice", params)
    return _written(walk, equation, kernel, operands, [(out, _names(out.shape, whole, "r"))])


def stack(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The new axis is whole."""
    params, (out,) = plain(equation.params), types_of(equation)
    if params is None:
        return None
    names, axis = plain_names(len(out.shape) - 1), int(equation.params["axis"])
    result = [*names[:axis], "r", *names[axis:]]
    return apply(walk, "stack", Bound("stack", params), [(a, names) for a in atoms], [(out, result)], whole={"r"})


def tile(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes that are repeated are whole."""
    params, (out,), shape = plain(equation.params), types_of(equation), walk.shape(atoms[0])
    if params is None or len(shape) != len(out.shape):
        return None
    whole = {axis for axis, size in enumerate(out.shape) if size != shape[axis]}
    operands, results = [(atoms[0], _names(shape, whole, "o"))], [(out, _names(out.shape, whole, "r"))]
    return _written(walk, equation, Bound("tile", params), operands, results)


def _names(shape: Sequence[int], whole: set[int], prefix: str) -> list[str]:
    return [f"{prefix}{axis}" if axis in whole else f"d{axis}" for axis in range(len(shape))]


def _result(shape: Sequence[int], whole: set[int], walk: Walk, atoms: Sequence[Atom], number: int) -> list[str]:
    """A whole axis of a result is that of the operand of its number where it has its size."""
    like = number if number < len(atoms) else 0
    own = walk.shape(atoms[like])
    return [
        f"d{a}" if a not in whole else (f"o{like}_{a}" if shape[a] == own[a] else f"r{number}_{a}")
        for a in range(len(shape))
    ]


def _written(walk: Walk, equation: Any, kernel: Any, operands: Any, results: Any) -> list[Atom]:
    whole = {dim for _, names in (*operands, *results) for dim in names if not dim.startswith("d")}
    return apply(walk, equation.primitive.name, kernel, operands, results, whole=whole)


def _one(parameter: str) -> Whole:
    return lambda params, rank: {int(params[parameter]) % rank}


def _last(params: dict[str, Any], rank: int) -> set[int]:
    return set(range(rank - len(params["fft_lengths"]), rank))


_MATRICES = """
    cholesky eig eigh hessenberg householder_product lu qr schur svd triangular_solve tridiagonal
"""

TABLE = {
    "sort": along(_one("dimension")),
    "top_k": along(lambda params, rank: {int(params.get("axis", params.get("operand_axis", rank - 1))) % rank}),
    "rev": along(lambda params, rank: {int(axis) for axis in params["dimensions"]}),
    "concatenate": along(_one("dimension")),
    "split": along(_one("axis")),
    "fft": along(_last),
    "cumlogsumexp": along(_one("axis")),
    "pad": pad,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "stack": stack,
    "tile": tile,
    **dict.fromkeys(_MATRICES.split(), matrices),
}
