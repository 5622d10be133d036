"""Whether two programs are one, or one but for sizes that follow from those of their operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from combinators.kernels.jaxprs import is_literal, is_program

# Parameters of primitives that follow from the shapes of what they are applied to.
_SHAPES = frozenset(
    ("shape", "new_sizes", "start_indices", "limit_indices", "slice_sizes", "sizes", "length", "axis_size")
)
# From one sharding to another.
_MOVES = frozenset(("pcast", "pvary", "reduced_vary_cast", "reshard", "sharding_constraint", "vary_unreduced_cast"))


def is_same(program: Any, other: Any) -> bool:
    """Whether two closed jaxprs are one program, with the same constants."""
    try:
        pairs = itertools.zip_longest(_tokens(program, on_mesh=False), _tokens(other, on_mesh=False))
        return all(one == two for one, two in pairs)
    except Exception:  # noqa: BLE001 - constants may be what nobody can compare, of which nothing is known
        return True


def alike_but_sizes(program: Any, other: Any) -> bool:
    """Whether two programs are the same, but for sizes that follow from those of their operands."""
    pairs = {
        pair
        for one, two in zip(program.in_avals, other.in_avals, strict=True)
        for pair in zip(one.shape, two.shape, strict=True)
        if pair[0] != pair[1]
    }
    ratios = {Fraction(*pair) for pair in pairs if pair[1]}
    for _ in range(2):
        ratios |= {one * two for one, two in itertools.product(ratios, ratios)}
    less = {one - two for one, two in pairs}

    def follows(one: Any, two: Any) -> bool:
        if not isinstance(one, int) or not isinstance(two, int):
            return False
        return one - two in less or (two != 0 and Fraction(one, two) in ratios)

    tokens = itertools.zip_longest(_tokens(program), _tokens(other))
    return all(
        one == two or (one is not None and two is not None and one[0] and two[0] and follows(one[1], two[1]))
        for one, two in tokens
    )


def _tokens(program: Any, *, on_mesh: bool = True) -> Iterator[tuple[bool, Any]]:
    """A program, one after the other: whether it is a size that may follow from the operands, and what it is.

    Without `on_mesh` what JAX writes down of the mesh inside of a `shard_map` is left out: beside choices, and as moves
    from one sharding to another, which give their operand.
    """
    jaxpr = getattr(program, "jaxpr", program)
    yield from ((False, _constant(value)) for value in getattr(program, "consts", ()))
    places: dict[Any, Any] = {atom: place for place, atom in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    numbers = itertools.count(len(places))

    def named(atom: Any) -> Any:
        return f"{atom.val}" if is_literal(atom) else places.get(atom)

    for equation in jaxpr.eqns:
        if not on_mesh and _gives_its_operand(equation):
            places[equation.outvars[0]] = named(equation.invars[0])
            continue
        yield False, (equation.primitive.name, *map(named, equation.invars))
        for key, value in sorted(equation.params.items()):
            if not on_mesh and ("mesh" in key or "sharding" in key):
                continue
            if key == "cost_estimate":
                continue  # which follows from all that is computed
            for part in _flat(value):
                if is_program(part):
                    yield from _tokens(part, on_mesh=on_mesh)
                elif key in ("grid_mapping", "out_avals"):
                    yield from _of_pallas(part, on_mesh=on_mesh)
                elif not callable(part) and " at 0x" not in (text := repr(part)):
                    yield key in _SHAPES, part if isinstance(part, int) else text
        places.update((out, next(numbers)) for out in equation.outvars)
    yield False, tuple(map(named, jaxpr.outvars))


def _of_pallas(part: Any, *, on_mesh: bool) -> Iterator[tuple[bool, Any]]:
    """The types that a Pallas kernel gives, or how it takes its operands: into how many blocks, which, and by what."""
    if not hasattr(part, "block_mappings"):
        yield from ((True, size) for size in getattr(part, "shape", ()))
        yield False, str(getattr(part, "dtype", part))
        return
    yield from ((isinstance(size, int), size if isinstance(size, int) else repr(size)) for size in part.grid)
    for block in part.block_mappings:
        yield False, repr(block.block_shape)
        yield from _tokens(block.index_map_jaxpr, on_mesh=on_mesh)


def _gives_its_operand(equation: Any) -> bool:
    name = equation.primitive.name
    if name == "reshape":
        return equation.invars[0].aval.shape == equation.outvars[0].aval.shape
    return name.removesuffix("_p") in _MOVES


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _constant(value: Any) -> Any:
    return np.shape(value), hash(np.asarray(value).tobytes())
