"""The sharded expression graph, as users see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax

from combinators.arguments import read_flag, read_name
from combinators.errors import PlanError, TapestryError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.evaluate import check_arguments
from combinators.graphs.graph import Graph
from combinators.graphs.scopes import is_inside
from combinators.kernels.immutable import Immutable
from combinators.kernels.jaxprs import is_program
from tapestry_jax.machines.known import find
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.shards.abstract import abstract
from tapestry_jax.shards.blocks_at import BlockAt, blocks_at, cells_read, count_blocks, families
from tapestry_jax.shards.compared import check_operations, check_same, check_structures
from tapestry_jax.shards.json import shards_from_json, shards_to_json
from tapestry_jax.shards.parts import Block, Program, Shared
from tapestry_jax.shards.proof.prove import MISFITS, prove
from tapestry_jax.shards.show import show
from tapestry_jax.shards.writing.written import written

if TYPE_CHECKING:
    from tapestry_jax.planning.pricing.cost import Cost


@dataclass(frozen=True, repr=False)
class ShardedGraph(Immutable):
    """A plan written out block by block. Made by `plan.shards()`, or read from a file.

    Blocks of one operation that differ by device and turn alone stand once, with their boxes as affine functions of the
    mesh axes and loops; `blocks` writes them out. Nothing here knows of layouts: tensors, boxes, and what reads what.

    Attributes:
      shared: mesh axes and loops, and the operations.
      program: tensors, pieces of them, and the steps that make one from others.

    Example:
      >>> import jax.numpy as jnp
      >>> import tapestry_jax as tp
      >>> double = tp.trace(tp.Map(jnp.negative), tp.TensorType({"n": 8}))
      >>> shards = tp.plan(double, tp.mesh(data=1), {}).shards()
      >>> shards.verify(double)
      >>> shards.abstract() == double, shards.cells_read()
      (True, 8)
    """

    shared: Shared
    program: Program

    @staticmethod
    def of(graph: Graph, schedule: Schedule) -> ShardedGraph:
        """The blocks of a schedule of a program."""
        return ShardedGraph(*written(graph, schedule))

    def verify(self, graph: Graph | None = None) -> None:
        """Prove, from the boxes alone, that these blocks compute a program.

        Every index of every operation is computed exactly once, up to copies on other devices. Every block reads the
        box that its index box projects to, and finds all of it on its device, in its turn. What blocks write does not
        overlap, and covers. States are merged exactly once over all that they are in pieces over, and in order where
        their monoid needs it. Nothing is read before it is made; boxes lie in bounds; dtypes are those of the tensors;
        every output is held whole.

        Args:
          graph: the program. Without it they are proved to compute what `abstract()` says.

        Raises:
          PlanError: with the path of the operation and the boxes, where one of these does not hold, or where these are
            blocks of another program.
        """
        if graph is not None:
            _check_graph(graph)
            check_operations(self.shared, self.program, graph)
        try:
            prove(self.shared, self.program)
            if graph is not None:
                check_same(abstract(self.shared, self.program), graph)
            check_structures(self.program)
        except MISFITS as error:
            what = f"`{self.program.name}` is written in parts that do not fit"
            told = f"{type(error).__name__}: {error}"
            raise PlanError(message(what, told, remedy="Write it again: plan.shards().")) from error

    def verify_lowered(self, jaxpr: Any, *, cells: bool = False) -> None:
        """Hold a lowered program against the blocks, without running it.

        Arguments and results lie as blocks take and give them. Every collective belongs to a move, a merge or a scan,
        in their order: over its mesh axes, along its axis, from device to device as the boxes want it; and none is
        left out, or sent twice. Operations stand in loops that turn as often as their blocks do.

        Args:
          jaxpr: `plan.compile().jaxpr()`, or the like.
          cells: also follow every cell through the lowered program, on all devices and in all turns, as a set of cells
            of the arguments: slices, masks, coordinates and whatever else a device does for itself has to leave every
            cell of the results made of the cells that the program makes it of; and what it comes to in numbers of
            finite fields has to be what the program comes to: none is counted twice, or in another order. Meant for
            small sizes.

        Raises:
          PlanError: with the path of the operation, and what was expected and found, for the first that differs; or
            for what is no traced program; or, with `cells`, for programs of more cells than can be followed.
        """
        # Loaded where it is asked for: what is proved, printed and stored needs no lowered program.
        from tapestry_jax.shards.lowered.against import check_lowered

        if not is_program(jaxpr):
            got = f"got {type(jaxpr).__name__}: {spelt(jaxpr)}"
            raise PlanError(
                message("blocks are held against a traced program", got, remedy="Pass plan.compile().jaxpr().")
            )
        check_lowered(self.shared, self.program, jaxpr)
        if read_flag(cells, "cells= of verify_lowered", PlanError):
            # It loads NumPy's side of all primitives, and only this asks for them.
            from tapestry_jax.shards.lowered.cells import check_cells

            # Operations without some kernels of platforms are no wider.
            plain = [replace(each, dense=()) for each in self.shared.operations]
            is_wider = any(plain[step.runs] != plain[step.operation] for _, step, _ in families(self.program))
            check_cells(self.abstract(), jaxpr, is_wider=is_wider)

    def abstract(self) -> Graph:
        """The abstract expression graph again: sizes from the boxes, wires from what blocks read.

        Raises:
          PlanError: where blocks of one operation disagree, or read what nothing makes.
        """
        return abstract(self.shared, self.program)

    def run(self, *args: Any) -> Any:
        """Run the blocks one by one, as they are written: no mesh, no `shard_map`, no partitioner.

        A second way to the values of a plan, to hold the lowered program against. It is slow, and meant for small
        tensors. Running it twice gives the same bits. They are proved first, from the boxes alone.

        Args:
          args: arrays of true sizes, in the structure of the program's arguments.

        Returns:
          NumPy arrays of true sizes, in the structure of the result.

        Raises:
          GraphError: for another number or structure of arguments, or something that is not an array.
          SignatureError: for a wrong rank, size or dtype.
          PlanError: where these blocks cannot be proved to compute what `abstract()` says, as `verify()` tells.
        """
        # Loaded by the first run: what is proved, printed and stored needs no arrays.
        from tapestry_jax.shards.run import run

        assert self._is_proved  # blocks of a file that nobody has proved may give numbers, and read what is not there
        leaves = check_arguments(self.abstract(), args)
        return jax.tree.unflatten(self.program.out_tree, run(self.shared, self.program, leaves))

    @cached_property
    def _is_proved(self) -> bool:
        self.verify()
        return True

    def cost(self, machine: Any) -> Cost:
        """What one run costs on a machine, in seconds, found from the blocks alone: forwards, as they are written.

        Blocks are priced by the roofline, and what devices send by the links that it goes over, as `plan.cost` prices
        the plan that they are of; blocks from a file, or written by hand, have no plan. The two are equal but for what
        only a plan says: an operation that brings its own operand together is taken to copy it as well.

        Args:
          machine: a `tp.machines.Machine`, such as `tp.machines.H100`, or a name: `"v5p"`, `"h100:8x8"`.

        Returns:
          A `Cost`, which prints as a table.

        Raises:
          MeshError: for an unknown machine, or a mesh that does not fill it.
          PlanError: when a cost is no number, or for blocks of a file that do not fit together.

        Example:
          >>> import jax.numpy as jnp
          >>> import tapestry_jax as tp
          >>> double = tp.trace(tp.Map(jnp.negative), tp.TensorType({"n": 4096}))
          >>> plan = tp.plan(double, tp.mesh(data=1), {})
          >>> plan.shards().cost("H100") == plan.cost("H100")
          True
        """
        # Loaded where it is asked for: what is proved, printed and stored needs no prices.
        from tapestry_jax.shards.pricing.priced import price

        chosen = find(machine)
        try:
            return price(self.shared, self.program, chosen)
        except PlanError:
            raise
        except (TapestryError, *MISFITS) as error:  # a file that nobody has proved may say anything
            details = f"{type(error).__name__}: {error}"
            remedy = "Ask shards.verify(graph) what is wrong with it."
            raise PlanError(message("blocks that do not fit together have no price", details, remedy=remedy)) from error

    def blocks(self, path: str = "") -> Iterator[BlockAt]:
        """Every block of the operations at or below a path, one by one; in loops, those of one turn.

        Raises:
          PlanError: where no operation lies there.
        """
        for program, step in self._below(path):
            yield from blocks_at(self.shared, program, step)

    def count(self, path: str = "") -> int:
        """How many blocks there are, copies on other devices left out; those in loops in every iteration.

        Raises:
          PlanError: where no operation lies at or below the path.
        """
        self._below(path)
        return sum(
            count_blocks(self.shared, step) * times
            for _, step, times in families(self.program)
            if is_inside(step.path, path)
        )

    def cells_read(self, path: str = "") -> int:
        """How many cells all blocks read of their operands: a cell that two blocks read counts twice.

        Copies of a block on other devices are one; what a boundary answers is not read.

        Raises:
          PlanError: where no operation lies at or below the path.
        """
        self._below(path)
        return sum(
            cells_read(self.shared, program, step) * times
            for program, step, times in families(self.program)
            if is_inside(step.path, path)
        )

    def to_json(self) -> str:
        """Store it as JSON text; kernels by public importable name.

        Raises:
          KernelError: where a kernel has no public name.
        """
        return shards_to_json(self.shared, self.program)

    @staticmethod
    def from_json(text: str, *, allow: Sequence[str] = ()) -> ShardedGraph:
        """Read one back, or one that was written by hand. Nothing is called; `verify` says whether it is right.

        Args:
          text: what `to_json` gave, or the like; the checksum may be left out.
          allow: packages whose functions it may name, beside the library's and JAX's array functions.

        Raises:
          FormatError: when the text is truncated, edited or of another version, or names what is not allowed.
        """
        return ShardedGraph(*shards_from_json(text, allow))

    def _below(self, path: str) -> list[tuple[Program, Block]]:
        if not isinstance(path, str) or path:  # pyright: ignore[reportUnnecessaryIsInstance]
            read_name(path, "the path of blocks", PlanError)
        found = [(program, step) for program, step, _ in families(self.program) if is_inside(step.path, path)]
        if path and not found:
            raise PlanError(
                message(
                    f"the sharded graph has no operation at or below {path!r}",
                    f"it has {', '.join(self._paths[:12])}",
                    remedy="Give the path of an operation or of a scope, as print(shards) shows them.",
                )
            )
        return found

    @cached_property
    def _paths(self) -> list[str]:
        return sorted({step.path for _, step, _ in families(self.program)})

    def __str__(self) -> str:
        return show(self.shared, self.program)

    def __repr__(self) -> str:
        return f"ShardedGraph({self.program.name}: {self.count()} blocks of {len(self._paths)} operations)"


def _check_graph(graph: object) -> None:
    if not isinstance(graph, Graph):
        raise PlanError(
            message(
                "blocks are proved to compute a graph",
                f"got {type(graph).__name__}: {spelt(graph)}",
                remedy="Pass the graph that was planned: shards.verify(tp.trace(f, *specs)).",
            )
        )
