"""What a sharded graph is made of: tensors, pieces of them, and the steps that make one from others. Data alone."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.operations.operation import Operation
from tapestry_jax.shards.ranges import Range

Ranges = tuple[Range, ...]


@dataclass(frozen=True)
class Coordinate:
    """A mesh axis, or a loop.

    Attributes:
      name: such as `data`, `@batch:4`, `@keys:8~data`.
      count: of devices, or of pieces.
      kind: `axis`, `turns`, `ring` or `pipeline`.
      along: of a ring the mesh axis around which pieces go, of a pipeline those of its stages.
    """

    name: str
    count: int
    kind: str = "axis"
    along: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """A tensor of the program, or a leaf of the state of a fold.

    Attributes:
      type: as a whole.
      path: of what makes it.
      state: whether it is a leaf of a state, which the program does not name.
    """

    type: TensorType
    path: str
    state: bool = False


@dataclass(frozen=True)
class Piece:
    """What every device holds of a tensor, in every turn of some loops.

    Attributes:
      value: the tensor, by its place in the table.
      box: one range an axis.
      loops: the loops in whose turns it is held; the innermost last.
      partial: of a state, the coordinates over which it is still in pieces, the outermost first.
      substep: in a loop that takes several iterations a turn, which of them.
      only: coordinate and value, where not all devices hold it.
    """

    value: int
    box: Ranges
    loops: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    substep: int = 0
    only: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Read:
    """What a block reads: a box of what the device holds of a piece."""

    piece: int
    box: Ranges


@dataclass(frozen=True)
class Take:
    """An argument of the program."""

    name: str
    result: int


@dataclass(frozen=True)
class Block:
    """One operation on the blocks of all devices and turns.

    Attributes:
      path: of the operation.
      operation: what the program applies, by its place in the table.
      runs: what runs in its place: with wider states, or with the kernels of a platform.
      names: of the operation's dimensions, as the program binds them.
      box: index box, dimension by dimension.
      loops: the loops in whose turns it runs.
      reads: of the operands, in order.
      makes: the tensors that the operation defines.
      results: pieces: of these tensors, or of the leaves of a state where folded dimensions are cut.
      chain: of a scan whose dimension is cut, the coordinates along which one block goes on from the one before.
      substep: as in `Piece`.
    """

    path: str
    operation: int
    runs: int
    names: tuple[tuple[str, str], ...]
    box: tuple[tuple[str, Range], ...]
    loops: tuple[str, ...]
    reads: tuple[Read, ...]
    makes: tuple[int, ...]
    results: tuple[int, ...]
    chain: tuple[str, ...] = ()
    substep: int = 0


@dataclass(frozen=True)
class Move:
    """Pieces of a tensor from other pieces of it.

    A device finds what it wants in its own piece, or in those of devices and turns that differ from it along `over`.

    Attributes:
      path: of what wants it.
      source: piece.
      result: piece.
      over: the coordinates; a ring's, where pieces go round.
      how: the named changes, for people and prices: `slice`, `all-gather`, `all-to-all`, `neighbours`, `ring`, ...
    """

    path: str
    source: int
    result: int
    over: tuple[str, ...]
    how: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """States become one along some coordinates.

    Attributes:
      path: of the fold.
      sources: pieces, leaf by leaf.
      results: pieces.
      over: the coordinates, the outermost first.
      how: `turn by turn`, `all-reduce`, `frame` or `in order`, leaf by leaf the same.
    """

    path: str
    sources: tuple[int, ...]
    results: tuple[int, ...]
    over: tuple[str, ...]
    how: str = ""


@dataclass(frozen=True)
class Present:
    """What a fold gives, from its state: all of a device's cells, or, scattered, some of them."""

    path: str
    sources: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """The same cells under other axis names; old to new."""

    path: str
    source: int
    result: int
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Next:
    """Within a turn that takes several iterations: what one hands on is what the next one takes."""

    source: int
    result: int


@dataclass(frozen=True)
class Repeat:
    """A loop of the program.

    Attributes:
      path: of the loop.
      loop: which of the program's loops; those of one number follow one another.
      turn: the coordinate of its turns.
      loops: the loops in whose turns it runs.
      body: the steps of one turn; its `Take`s are carries, slices, constants, in this order.
      first: the first iteration.
      turns: how often the body runs.
      depth: the iterations of a turn.
      over: the dimension of the slices.
      carries: how many operands are carried.
      axes: of each sliced operand the axis of the slices.
      operands: pieces.
      makes: the tensors that the loop defines.
      results: pieces.
      stage: of a pipeline, the iterations of each device.
      until: whether it ends before the first turn in which carry 0 holds.
    """

    path: str
    loop: int
    turn: str
    loops: tuple[str, ...]
    body: Program
    first: int
    turns: int
    depth: int
    over: str | None
    carries: int
    axes: tuple[int, ...]
    operands: tuple[int, ...]
    makes: tuple[int, ...]
    results: tuple[int, ...]
    stage: Range | None = None
    until: bool = False


Step = Take | Block | Move | Merge | Present | View | Next | Repeat


@dataclass(frozen=True)
class Program:
    """The steps of a program, or of the body of a loop.

    Attributes:
      name: of the program.
      values: tensors, in the order of the program.
      pieces: each made by one step.
      steps: in an order in which they can run.
      outputs: name and piece of what is observed.
      named: name and tensor of what can be observed.
      suggested: names of dimensions that are labels alone.
      in_tree: how the inputs make the arguments.
      out_tree: how the outputs make the result.
    """

    name: str
    values: tuple[Value, ...]
    pieces: tuple[Piece, ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]
    named: tuple[tuple[str, int], ...]
    suggested: frozenset[str]
    in_tree: Any = field(repr=False)
    out_tree: Any = field(repr=False)

    @property
    def takes(self) -> list[int]:
        """The tensors that it takes in, in order."""
        return [self.pieces[step.result].value for step in self.steps if isinstance(step, Take)]


@dataclass(frozen=True)
class Shared:
    """What all programs of a sharded graph refer to."""

    coordinates: tuple[Coordinate, ...]
    operations: tuple[Operation, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many values every coordinate has."""
        return {each.name: each.count for each in self.coordinates}

    @property
    def kinds(self) -> dict[str, Coordinate]:
        """Coordinates by name."""
        return {each.name: each for each in self.coordinates}
