"""Programs inside of an operation, run on blocks of it: loops until a condition holds, and choices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.graphs.evaluate import run_loop
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Loop, Ref
from combinators.graphs.opaque import opaque_operations
from combinators.numerics.until import run_until
from combinators.operations.execute import axis_modes, read_operand, run_blocks
from combinators.operations.ready import ready
from combinators.operations.shaped import Shaped
from tapestry_jax.lifting.kernels.cells import as_computed
from tapestry_jax.lowering.on_device.varying import vary, varying_axes

Coordinates = Mapping[str, Any]
"""Of dimensions that may be cut the coordinates of the block."""


class Within(ABC):
    """A kernel that asks for the functions in whose derivatives it stands."""

    @abstractmethod
    def within(self, outer: Outer, blocks: Sequence[Any]) -> list[Any]:
        """Its results."""


Outer = tuple[tuple[Within, tuple[Any, ...]], ...]
"""The functions in whose derivatives a program stands, with the coordinates of their blocks, the outermost first."""


@dataclass(frozen=True)
class OnBlocks:
    """A program whose operations all map the dimensions that are cut: on a block it is the same program.

    Attributes:
      graph: its dimensions have names of their own.
      cut: those that may be cut.
      inputs: the positions of those that are given.
      outputs: the positions of those that are wanted.
    """

    graph: Graph
    cut: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def __call__(self, coordinates: Coordinates, operands: Sequence[Any], outer: Outer = ()) -> list[Any]:
        """Its results."""
        given = dict(zip(self.inputs, operands, strict=True))
        wanted = [self.graph.outputs[at][1] for at in self.outputs]
        blocks = [given.get(at) for at in range(len(self.graph.inputs))]
        return self._run((coordinates, outer), self.graph, blocks, wanted)

    def unknown(self) -> str | None:
        """A primitive that no rule knows and that its results need."""
        graph = self.graph
        for index in sorted(reached(graph, [graph.outputs[at][1] for at in self.outputs])):
            node = graph.nodes[index]
            if isinstance(node, Loop) and (found := opaque_operations(node.body)):
                return found[0].primitive
            if isinstance(node, Apply) and (told := getattr(node.operation.kernel, "opaque", None)):
                return str(told[0])
        return None

    def _run(
        self, around: tuple[Coordinates, Outer], graph: Graph, operands: Sequence[Any], wanted: Sequence[Ref] = ()
    ) -> list[Any]:
        values: dict[Ref, Any] = {}
        given, wanted = iter(operands), wanted or [ref for _, ref in graph.outputs]
        needed = reached(graph, wanted)
        for index, node in enumerate(graph.nodes):
            if isinstance(node, Input):
                values[Ref(index, 0)] = next(given)
            elif index in needed:
                found = self._node(around, graph, index, [values[ref] for ref in node.operands])
                values.update({Ref(index, number): result for number, result in enumerate(found)})
        return [values[ref] for ref in wanted]

    def _node(self, around: tuple[Coordinates, Outer], graph: Graph, index: int, read: list[Any]) -> list[Any]:
        match graph.nodes[index]:
            case Loop() as node:

                def body(inner: Graph, given: Sequence[Any]) -> list[Any]:
                    return alike(self._run(around, inner, given))

                return run_loop(node, alike(read), body)
            case Apply() as node:
                return self._apply(around, graph.shaped(index), node.bound, read)
            case _:
                return read

    def _apply(
        self, around: tuple[Coordinates, Outer], shaped: Shaped, bound: Mapping[str, str], read: Sequence[Any]
    ) -> list[Any]:
        coordinates, outer = around
        arrays, blocks = iter(read), list[Any]()
        for operand, modes in zip(shaped.signature.operands, axis_modes(shaped), strict=True):
            if operand.coordinate is None:
                blocks.append(read_operand(operand, next(arrays), shaped.sizes, modes))
            elif bound[operand.coordinate] in coordinates:
                blocks.append(coordinates[bound[operand.coordinate]])
            else:
                blocks.append(as_computed(jnp.arange(shaped.sizes[operand.coordinate], dtype=jnp.int32)))
        kernel = shaped.operation.kernel
        if isinstance(kernel, Within):
            return kernel.within(outer, blocks)
        cut = {dim for dim, name in bound.items() if name in self.cut}
        return run_blocks(ready(shaped, cut), blocks)


@dataclass(frozen=True)
class Controlled:
    """What is common to loops and choices.

    Attributes:
      opaque: what `Graph.opaque` shows where something is not known: the primitive, and where it was written.
      at: the dimensions whose coordinates are further operands.
    """

    opaque: tuple[str, str] | None
    at: tuple[str, ...]

    def given(self, blocks: Sequence[Any]) -> tuple[Coordinates, list[Any]]:
        """The coordinates, and the operands."""
        count = len(blocks) - len(self.at)
        return dict(zip(self.at, blocks[count:], strict=True)), list(blocks[:count])


@dataclass(frozen=True)
class Choice(Controlled):
    """One of several programs, by a number.

    Attributes:
      branches: of the operands behind the number.
    """

    branches: tuple[OnBlocks, ...]

    def __call__(self, *blocks: Any) -> Any:
        """The results of the one that is chosen."""
        coordinates, (index, *operands) = self.given(blocks)
        told = [index, *operands, *coordinates.values()]
        # What starts to vary inside of a branch would be summed inside of it by the backward pass.
        operands = alike(operands, told)
        branches = [lambda *given, branch=branch: alike(branch(coordinates, given), told) for branch in self.branches]
        out = lax.switch(index, branches, *operands)
        return out[0] if len(out) == 1 else tuple(out)


@dataclass(frozen=True)
class Until(Controlled):
    """A program that is repeated while a condition holds, which has nothing that is cut but a batch.

    Attributes:
      condition: of its constants and the carries.
      body: of its constants and the carries.
      constants: how many the condition and the body have.
      wanted: the positions of the carries that are results.
      batch: how many axes the condition has, the first ones of all carries: each cell stops by itself.
    """

    condition: OnBlocks
    body: OnBlocks
    constants: tuple[int, int]
    wanted: tuple[int, ...]
    batch: int = 0

    def __call__(self, *blocks: Any) -> Any:
        """The last carries."""
        coordinates, operands = self.given(blocks)
        told = [*operands, *coordinates.values()]
        operands = alike(operands, told)
        of_condition, of_body = self.constants
        asked, fixed = operands[:of_condition], operands[of_condition : of_condition + of_body]

        def asked_of(carry: list[Any]) -> list[Any]:
            goes_on = self.condition(coordinates, [*asked, *carry])[0]
            return [~goes_on.any(), goes_on, *carry]

        def turn(state: list[Any]) -> list[Any]:
            _, goes_on, *carry = state
            made = self.body(coordinates, [*fixed, *carry])
            if self.batch:
                made = [_chosen(goes_on, new, old) for new, old in zip(made, carry, strict=True)]
            return asked_of(alike(made, told))

        last = run_until(turn, asked_of(operands[of_condition + of_body :]), None, "while")[2:]
        out = [last[at] for at in self.wanted]
        return out[0] if len(out) == 1 else tuple(out)


def _chosen(goes_on: Any, new: Any, old: Any) -> Any:
    """What a batch is after a turn: that of those that go on."""
    return jnp.where(goes_on.reshape(goes_on.shape + (1,) * (old.ndim - goes_on.ndim)), new, old)


def reached(graph: Graph, wanted: Iterable[Ref]) -> set[int]:
    """The nodes that some values need."""
    needed = {ref.node for ref in wanted}
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in needed:
            needed.update(ref.node for ref in graph.nodes[index].operands)
    return needed


def alike(values: Sequence[Any], told: Sequence[Any] = ()) -> list[Any]:
    """The values, varying over all mesh axes over which one of them does, or one of `told`."""
    axes = frozenset[str]().union(*map(varying_axes, (*values, *told)))
    return [vary(value, axes) for value in values]
