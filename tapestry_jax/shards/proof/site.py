"""The program that is proved, what has been made of it so far, and how a proof fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NoReturn

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.shards.parts import Block, Coordinate, Piece, Program, Ranges, Shared, Value
from tapestry_jax.shards.proof.axes import bounds_fault, counted, reach_fault

REMEDY = "Write the sharded graph again, with plan.shards(), or mend the step that is named."


@dataclass(frozen=True)
class Site:
    """A program, or the body of a loop.

    Attributes:
      shared: coordinates and operations.
      program: its steps.
      loops: those around it, the outermost first.
      depth: how many iterations it takes at once.
      made: the pieces that there are by now; grows.
      folds: the tensor of a state's first leaf to the block that makes it; grows.
    """

    shared: Shared
    program: Program
    loops: tuple[str, ...] = ()
    depth: int = 1
    made: set[int] = field(default_factory=set[int])
    folds: dict[tuple[int, int], Block] = field(default_factory=dict[tuple[int, int], Block])

    @property
    def counts(self) -> dict[str, int]:
        """How many values every coordinate has."""
        return self.shared.counts

    @property
    def kinds(self) -> dict[str, Coordinate]:
        """Coordinates by name."""
        return self.shared.kinds

    def piece(self, number: int, path: str) -> Piece:
        """A piece that has been made.

        Raises:
          PlanError: where no earlier step makes it.
        """
        if not 0 <= number < len(self.program.pieces):
            refuse(path, f"reads piece {number}, which there is not")
        if number not in self.made:
            refuse(path, f"reads piece {number} ({self.told(number)}) before anything has made it, or in a circle")
        return self.program.pieces[number]

    def value(self, piece: Piece) -> Value:
        """The tensor of a piece."""
        return self.program.values[piece.value]

    def told(self, number: int) -> str:
        """A piece as errors name it."""
        piece = self.program.pieces[number]
        return f"of `{self.value(piece).path}`" if 0 <= piece.value < len(self.program.values) else "of no tensor"

    def make(self, number: int, path: str) -> Piece:
        """A piece that a step makes.

        Raises:
          PlanError: for a piece that is made twice, has another rank than its tensor, or lies outside of it.
        """
        if not 0 <= number < len(self.program.pieces):
            refuse(path, f"makes piece {number}, which there is not")
        if number in self.made:
            refuse(path, f"makes piece {number} ({self.told(number)}) a second time")
        piece = self.program.pieces[number]
        if not 0 <= piece.value < len(self.program.values):
            refuse(path, f"makes a piece of tensor {piece.value}, which there is not")
        shape = self.value(piece).type.shape
        if len(piece.box) != len(shape):
            refuse(path, f"makes a piece of {len(piece.box)} axes", f"its tensor is {self.value(piece).type}")
        self.check_scope(piece.box, piece.loops, path)
        unknown = [name for name in (*piece.partial, *(name for name, _ in piece.only)) if name not in self.counts]
        if unknown or not 0 <= piece.substep < self.depth:
            refuse(path, "makes a piece at no place of its loops", f"{piece.partial}, {piece.only}, {piece.substep}")
        for axis, (own, size) in enumerate(zip(piece.box, shape, strict=True)):
            fault = bounds_fault(own, size)
            if fault is not None:
                refuse(path, f"makes a piece that is out of bounds along axis {axis}", fault)
        self.made.add(number)
        return piece

    def check_scope(self, box: Sequence[object], loops: tuple[str, ...], path: str) -> None:
        """Boxes move along mesh axes, and along the loops in whose turns they are.

        Raises:
          PlanError: naming the coordinate.
        """
        kinds = self.kinds
        for loop in loops:
            if loop not in kinds or kinds[loop].kind == "axis":
                refuse(path, f"is in the turns of `{loop}`, which is no loop")
        for own in box:
            for name in getattr(own, "coordinates", ()):
                if name not in kinds:
                    refuse(path, f"moves along `{name}`, which is neither a mesh axis nor a loop")
                if kinds[name].kind != "axis" and name not in loops:
                    refuse(path, f"moves along `{name}`, outside of that loop", f"inside of ({', '.join(loops)})")

    def check_reach(
        self,
        source: Piece,
        wanted: Ranges,
        over: tuple[str, ...],
        only: Sequence[tuple[str, int]],
        path: str,
        what: str,
    ) -> None:
        """Every device finds, in a piece, all cells that it wants.

        Raises:
          PlanError: with the boxes on a device where it does not.
        """
        shape, pinned = self.value(source).type.shape, tuple(sorted(source.only))
        for axis, (own, target, size) in enumerate(zip(source.box, wanted, shape, strict=True)):
            more = [name for name, _ in (*pinned, *only)]
            counts = counted(self.counts, (own, target), more)
            along = tuple(sorted(set(over) & {name for name, _ in counts}))
            fault = reach_fault(own, target, size, along, counts, pinned, tuple(sorted(only)))
            if fault is not None:
                refuse(path, f"{what} along axis {axis} of `{self.value(source).path}`", fault)

    def check_together(self, box: Sequence[object], over: Sequence[str], path: str, what: str) -> None:
        """What devices bring together is of one turn: no loop whose turns differ along these axes moves it.

        Raises:
          PlanError: naming the loop.
        """
        kinds = self.kinds
        for own in box:
            for name in getattr(own, "coordinates", ()):
                apart = set(kinds[name].along) & set(over)
                if apart and name not in over:
                    refuse(path, f"{what} along `{min(apart)}`, whose devices are in different turns of `{name}`")


def refuse(path: str, what: str, *lines: str) -> NoReturn:
    """Raise the error of a proof that fails."""
    raise PlanError(message(f"`{path}` {what}", *lines, remedy=REMEDY))
