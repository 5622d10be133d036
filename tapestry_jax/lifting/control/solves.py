"""Linear solves with a derivative by a solve: cut along what the map, its solve and that of its transpose all map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from tapestry_jax.lifting.control.branches import Part, Wrote
from tapestry_jax.lifting.control.inside import entered, written
from tapestry_jax.lifting.control.kernel import Controlled, OnBlocks, alike
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk


@dataclass(frozen=True)
class Solve(Controlled):
    """`lax.custom_linear_solve` of programs on blocks: JAX derives it, as often as is asked.

    Attributes:
      programs: the linear map, its solve and, where there is one, the solve of its transpose.
      constants: how many operands each has before the vector.
      is_symmetric: whether the map is its own transpose.
      wanted: the positions of the parts of the vector that are results.
    """

    programs: tuple[OnBlocks, ...]
    constants: tuple[int, ...]
    is_symmetric: bool
    wanted: tuple[int, ...]

    def __call__(self, *blocks: Any) -> Any:
        """The parts of the solution."""
        coordinates, operands = self.given(blocks)
        told = [*operands, *coordinates.values()]
        operands = alike(operands, told)
        calls = list[Callable[[Sequence[Any]], list[Any]]]()
        for number, (program, count) in enumerate(zip(self.programs, self.constants, strict=True)):
            own, operands = operands[:count], operands[count:]
            # The derivative is that of the map: by what a solve alone reads there is none, and JAX fails to find that.
            own = own if number == 0 else [lax.stop_gradient(operand) for operand in own]
            calls.append(lambda x, run=program, own=own: alike(run(coordinates, [*own, *x]), told))
        apply, solve, *transposed = calls
        back = (lambda _, x: transposed[0](x)) if transposed else None
        found = lax.custom_linear_solve(apply, operands, lambda _, x: solve(x), back, symmetric=self.is_symmetric)
        out = [found[at] for at in self.wanted]
        return out[0] if len(out) == 1 else tuple(out)


def solved(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A solve for the parts that carry the same dimensions; None where nothing of it can be cut, or it has others."""
    lengths, programs = equation.params["const_lengths"], equation.params["jaxprs"]
    count = len(atoms) - sum(lengths)
    if len(equation.outvars) != count:
        return None
    inside, values, named = entered(walk, atoms)
    vector, listed, used = named[-count:], list[str](), list[int]()
    for which in ("matvec", "solve", "transpose_solve"):
        program = getattr(programs, which)
        if program is None:
            continue
        start = sum(lengths[: lengths._fields.index(which)])
        own = list(range(start, start + getattr(lengths, which)))
        for one, other in zip(
            vector, inside.run(written(walk, program, which), [*(named[at] for at in own), *vector]), strict=True
        ):
            inside.unite(one, other)
        listed.append(which)
        used += own
    constants = tuple(int(getattr(lengths, which)) for which in listed)
    is_symmetric = _is_symmetric(lengths, programs, atoms)

    def part(graphs: list[Graph], cut: tuple[str, ...], wanted: list[int]) -> Part:
        told = tuple(
            OnBlocks(graph, cut, tuple(range(len(graph.inputs))), tuple(range(len(graph.outputs)))) for graph in graphs
        )
        operands = [*used, *range(len(values) - count, len(values))]
        return Part(lambda opaque, at: Solve(opaque, at, told, constants, is_symmetric, tuple(wanted)), told, operands)

    return Wrote(walk, equation, values, named, vector).run(inside, part)


def _is_symmetric(lengths: Any, programs: Any, atoms: list[Atom]) -> bool:
    """Whether what applies the transpose is what applies the map."""
    first, second = atoms[: lengths.matvec], atoms[lengths.matvec : lengths.matvec + lengths.vecmat]
    return programs.vecmat is not None and first == second and str(programs.matvec) == str(programs.vecmat)


TABLE = {"custom_linear_solve": solved}
