"""Functions that mix cells and have a derivative of their author's: cut along what they and the derivative both map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.lifting.assign import Named
from tapestry_jax.lifting.constants import LARGEST
from tapestry_jax.lifting.control.branches import Part, Wrote
from tapestry_jax.lifting.control.inside import Inside, entered, written
from tapestry_jax.lifting.control.kernel import Controlled, Coordinates, OnBlocks, Outer, Within, alike
from tapestry_jax.lifting.kernels.derivatives import with_pulled, with_tangents
from tapestry_jax.lifting.rules import custom
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of


@dataclass(frozen=True)
class Derived(Controlled, Within):
    """A function and its derivative.

    Attributes:
      value: operands to results.
      derivative: operands and tangents to results and tangents; or operands and cotangents to cotangents.
      is_pushed: which of the two.
      floats: for each operand whether it has a derivative.
    """

    value: OnBlocks
    derivative: OnBlocks
    is_pushed: bool
    floats: tuple[bool, ...]

    def __call__(self, *blocks: Any) -> Any:
        """The results."""
        out = self.within((), blocks)
        return out[0] if len(out) == 1 else tuple(out)

    def within(self, outer: Outer, blocks: Sequence[Any]) -> list[Any]:
        """The results, in the derivatives of others."""
        own, count = alike(blocks), len(self.floats)
        # Coordinates are operands too, of the functions around as well: what a derivative captured would be gone.
        operands = [*own, *alike([one for _, told in outer for one in told], own)]
        floats = tuple(at < count and self.floats[at] for at in range(len(operands)))

        def parted(given: Sequence[Any]) -> tuple[Coordinates, list[Any], Outer]:
            told, further = tuple(given[count : len(own)]), iter(given[len(own) : len(operands)])
            around = tuple((kernel, tuple(next(further) for _ in one)) for kernel, one in outer)
            return dict(zip(self.at, told, strict=True)), list(given[:count]), (*around, (self, told))

        def value(given: Sequence[Any]) -> list[Any]:
            return alike(self.value(*parted(given)), operands)

        def derivative(given: Sequence[Any]) -> list[Any]:
            coordinates, taken, inside = parted(given)
            return alike(self.derivative(coordinates, [*taken, *given[len(operands) :]], inside), operands)

        if self.is_pushed:
            return with_tangents(value, derivative, floats, operands, len(self.value.outputs))
        return with_pulled(value, derivative, floats, operands)


@dataclass(frozen=True)
class Itself(Within):
    """In a derivative a call of the function that it is of, or of one around.

    Attributes:
      above: how many functions stand between.
      value: what it computes.
    """

    above: int
    value: OnBlocks

    def __call__(self, *blocks: Any) -> Any:
        """The results, without the derivative: only their types are asked for."""
        out = self.value({}, blocks)
        return out[0] if len(out) == 1 else tuple(out)

    def within(self, outer: Outer, blocks: Sequence[Any]) -> list[Any]:
        """The results."""
        at = len(outer) - 1 - self.above
        kernel, told = outer[at]
        return kernel.within(outer[:at], [*blocks, *told])


# A derivative may hold another function with one, and so on: each derives those before it once more.
_DEEPEST = 3


def derived(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A rule cell by cell where it is one; else the value and the derivative as programs over common dimensions."""
    text = custom.text_of(equation)
    if text in walk.outer:
        return _itself(walk, equation, atoms, len(walk.outer) - 1 - walk.outer.index(text))
    found = custom.custom(walk, equation, atoms)
    if found is not None or text in walk.around or len(walk.outer) >= _DEEPEST:
        return found
    parts = custom.parts_of(equation, walk.place)
    if parts is None:
        return None
    (program, derivative, floats), is_pushed = parts, custom.is_pushed(equation)
    if any(closed.effects or _is_large(closed.consts) for closed in (program, derivative)):
        return None
    inside, values, named = entered(walk, atoms)
    outs = inside.run(written(walk, program, "value"), named)
    moving = [own for own, moves in zip(named, floats, strict=True) if moves]
    types = types_of(equation)
    slopes = [own for own, kind in zip(outs, types, strict=True) if jnp.issubdtype(kind.dtype, jnp.inexact)]
    given, wanted = (moving, [*outs, *slopes]) if is_pushed else (slopes, moving)
    made = inside.run(written(walk, derivative, "derivative", text), [*named, *given])
    for own, other in zip(wanted, made, strict=True):
        inside.unite(own, other)
    _common(inside, outs)

    def part(graphs: list[Graph], cut: tuple[str, ...], results: list[int]) -> Part:
        del results  # all: they carry the same dimensions
        value, slope = (_whole(graph, cut) for graph in graphs)

        def kernel(opaque: tuple[str, str] | None, at: tuple[str, ...]) -> Derived:
            return Derived(opaque, at, value, slope, is_pushed, floats)

        return Part(kernel, [value, slope], list(range(len(values))))

    return Wrote(walk, equation, values, named, outs).run(inside, part)


def _itself(walk: Walk, equation: Any, atoms: list[Atom], above: int) -> list[Atom]:
    """A call of a function in its own derivative, with the dimensions that the function has."""
    inside, values, named = entered(walk, atoms)
    outs = inside.run(written(walk, custom.program_inside(equation), "value"), named)
    _common(inside, outs)
    names, cut, _ = inside.finish([*named, *outs])
    (graph,) = inside.graphs(names)
    wrote = Wrote(walk, equation, values, named, outs)
    return wrote.apply(
        Itself(above, _whole(graph, tuple(sorted(cut)))), range(len(values)), range(len(outs)), names, (), cut
    )


def _is_large(constants: Sequence[Any]) -> bool:
    """Whether a graph would refuse an array that is held."""
    return any(np.asarray(constant).nbytes > LARGEST for constant in constants)


def _common(inside: Inside, outs: Sequence[Named]) -> None:
    """Keep whole what not all results carry: one derivative is of them all."""
    carried = [{dim.find() for dim in own if dim is not None} for own in outs]
    for own in outs:
        for dim in own:
            if dim is not None and not all(dim.find() in roots for roots in carried):
                inside.unite((dim,), (None,))


def _whole(graph: Graph, cut: tuple[str, ...]) -> OnBlocks:
    """A program of all its inputs to all its results."""
    return OnBlocks(graph, cut, tuple(range(len(graph.inputs))), tuple(range(len(graph.outputs))))


TABLE = dict.fromkeys(custom.WRITTEN, derived)
