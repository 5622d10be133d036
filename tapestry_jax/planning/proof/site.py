"""Where in a program a step stands: which loops are open around it, and what they let devices do together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import dim_of, is_time, label, ring_of
from tapestry_jax.planning.proof.pieces import Piece, box_of, first_difference, spelled


@dataclass(frozen=True)
class Site:
    """A mesh, and the loops around a step.

    Attributes:
      mesh: its shape.
      opened: the loops, outermost first.
      staged: the loops whose turn differs from device to device, and the mesh axes along which it does.
      stages: the mesh axes of the innermost pipeline; its devices are at different places of the program.
    """

    mesh: MeshShape
    opened: tuple[str, ...] = ()
    staged: tuple[tuple[str, tuple[str, ...]], ...] = ()
    stages: tuple[str, ...] = ()

    def inside(self, axis: str, stages: tuple[str, ...]) -> Site:
        """The site of the body of a loop."""
        if not stages:
            return replace(self, opened=(*self.opened, axis))
        return replace(self, opened=(*self.opened, axis), staged=(*self.staged, (axis, stages)), stages=stages)

    def check_axes(self, axes: Iterable[str], path: str) -> None:
        """Every mesh axis exists, and every loop is one around this step.

        Raises:
          PlanError: naming the axis.
        """
        for axis in axes:
            if is_time(axis) and axis not in self.opened:
                refuse(path, f"takes {label(axis)} of `{dim_of(axis)}`, outside of that loop")
            if not is_time(axis) and axis not in self.mesh.names:
                refuse(path, f"is cut over `{axis}`, which the mesh does not have")

    def differs_along(self, pieces: Iterable[Piece], axes: Iterable[str]) -> str | None:
        """The first digit of `pieces` that differs from device to device along some mesh axes; None where all agree."""
        along, staged = set(axes), dict(self.staged)
        for piece in pieces:
            for digit, _ in piece.digits:
                if digit in along or ring_of(digit) in along or along.intersection(staged.get(digit, ())):
                    return digit
        return None

    def check_together(self, others: Sequence[Piece], axes: Sequence[str], path: str, what: str) -> None:
        """What devices along `axes` bring together is of one piece of every other dimension, in one turn of one stage.

        Raises:
          PlanError: naming the boxes of two devices that differ.
        """
        apart = set(axes) & {axis for _, stages in self.staged for axis in stages}
        if apart:
            refuse(path, f"{what} along `{sorted(apart)[0]}`, whose devices are different stages")
        digit = self.differs_along(others, axes)
        if digit is None:
            return
        moved = next(axis for axis in axes if axis == digit or axis == ring_of(digit) or self._stages_of(digit, axis))
        first, second = (box_of(others, {moved: number}, self.mesh) for number in (0, 1))
        refuse(
            path,
            f"{what} along `{moved}`, whose devices hold different pieces of another dimension",
            f"the box of the others is {first} on {moved}=0 and {second} on {moved}=1, in the same turn",
        )

    def _stages_of(self, digit: str, axis: str) -> bool:
        return axis in dict(self.staged).get(digit, ())


def check_same(
    site: Site, path: str, what: str, wanted: Sequence[Piece], held: Sequence[Piece], verbs: tuple[str, str]
) -> None:
    """Two lists of pieces are the same on every device in every turn.

    Args:
      site: of the step.
      path: of the operation.
      what: the headline, such as "reads other cells of operand 0 than it holds".
      wanted: one of them.
      held: the other.
      verbs: what is done with them, such as `("reads", "holds")`.

    Raises:
      PlanError: with the two boxes, on a device and in a turn where they differ.
    """
    if list(wanted) == list(held):
        return
    where = first_difference(wanted, held, site.mesh)
    left, right = box_of(wanted, where, site.mesh), box_of(held, where, site.mesh)
    lines = [f"on {spelled(where)}: {verbs[0]} {left}, {verbs[1]} {right}"]
    if left == right:
        lines = [f"{verbs[0]} {_kinds(wanted)}, {verbs[1]} {_kinds(held)}", f"box {left}"]
    refuse(path, what, *lines)


def refuse(path: str, what: str, *lines: str) -> NoReturn:
    """Raise the error of a proof that fails at an operation."""
    raise PlanError(message(f"`{path}` {what}", *lines, remedy="Plan again: this schedule was damaged."))


def _kinds(pieces: Sequence[Piece]) -> str:
    """What tells pieces apart that have the same box."""
    return ", ".join(
        f"stripes of {piece.deal}" if piece.deal else str(piece.window) if piece.window else "blocks"
        for piece in pieces
    )
