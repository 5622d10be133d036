"""The sizes of a signature's dimensions, solved from the shapes of its operands in exact integers.

Bare axes give sizes, composite axes divide out their last unknown factor, and affine axes give the largest range whose
every read exists. The rules are applied until nothing new follows; what is left open, or said twice, is an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import NoReturn

from combinators.errors import SignatureError, message
from combinators.index_space.axis import Axis
from combinators.index_space.boundary import boundary_modes
from combinators.index_space.extent import axis_size, cells_read
from combinators.index_space.signature import Signature, check_count

Shape = tuple[int, ...]


def solve_sizes(
    signature: Signature,
    shapes: Sequence[Shape | None],
    *,
    given: Mapping[str, int] | None = None,
    boundary: str | Sequence[str] = "valid",
    where: str = "",
) -> dict[str, int]:
    """Solve the size of every dimension.

    With the boundary `valid` an affine axis of `n` cells gives its one unknown dimension the largest size for which
    all reads lie in `[0, n)`; with any other boundary `ceil(n / abs(coefficient))`. Several affine axes of one
    unknown must all be satisfied.

    Args:
      signature: where it has `...`, this is expanded to fit the shapes.
      shapes: one for every operand; the entries of coordinates are ignored and may be None.
      given: sizes known beforehand, by dimension.
      boundary: one mode of `BOUNDARIES`, or one for every affine operand axis that is not bare, in order.
      where: the operation, for error messages.

    Returns:
      The size of every dimension, in the order of `signature.dims`. Sizes may be 0.

    Raises:
      SignatureError: when ranks, sizes or boundaries do not fit, when sizes contradict each other, or when they leave
        a dimension open.
    """
    rank = signature.ellipsis_rank([None if shape is None else len(shape) for shape in shapes], where=where)
    return _Solver(signature.expand(rank), shapes, given or {}, boundary, where).solve()


def solve_partly(signature: Signature, shapes: Sequence[Shape], *, where: str = "") -> dict[str, int]:
    """Solve the sizes that bare and composite axes tell, whatever else stays open.

    Args:
      signature: without `...`.
      shapes: one for every operand.
      where: for error messages.

    Returns:
      The size of every dimension that is told.

    Raises:
      SignatureError: when sizes do not fit, or contradict each other.
    """
    solver = _Solver(signature, shapes, {}, "edge", where)
    while solver.solve_exact():
        pass
    solver.check_composites()
    return solver.known


class _Solver:
    """The sizes known so far, and where each came from."""

    def __init__(
        self,
        signature: Signature,
        shapes: Sequence[Shape | None],
        given: Mapping[str, int],
        boundary: str | Sequence[str],
        where: str,
    ) -> None:
        check_count(signature, len(shapes), where)
        self.signature = signature
        self.shapes = shapes
        self.where = where
        self.known: dict[str, int] = {}
        self.origin: dict[str, str] = {}
        self.axes = [
            (index, at, axis, _checked_size(shape[at], signature, f"axis {at} of operand {index}"))
            for index, (operand, shape) in enumerate(zip(signature.operands, shapes, strict=True))
            if shape is not None and operand.coordinate is None
            for at, axis in enumerate(operand.axes)
        ]
        modes = iter(boundary_modes(signature, boundary))
        self.modes = {(index, at): next(modes) for index, at, axis, _ in self.axes if axis.is_window}
        for name, size in given.items():
            if name not in signature.dims:
                raise SignatureError(
                    message(
                        f"`{signature}` has no dimension `{name}` to give a size to.",
                        f"its dimensions are {', '.join(signature.dims) or '(none)'}",
                        remedy=f"Leave `{name}` out of the given sizes, or correct its name.",
                    )
                )
            self.known[name] = _checked_size(size, signature, f"`{name}`")
            self.origin[name] = "the given sizes"

    def solve(self) -> dict[str, int]:
        progress = True
        while progress:
            progress = self.solve_exact() or self.solve_windows()
        unsolved = [name for name in self.signature.dims if name not in self.known]
        if unsolved:
            self.fail_unsolved(unsolved)
        for index, at, axis, n in self.axes:
            if axis.is_window:
                self.check_window(index, at, axis, n)
        self.check_composites()
        return {name: self.known[name] for name in self.signature.dims}

    def check_composites(self) -> None:
        """Hold the compositions of which every part is known against their axes."""
        for index, at, axis, n in self.axes:
            if axis.kind == "composite" and not self.unknown(axis) and axis_size(axis, self.known) != n:
                self.fail(index, at, f"`{axis}` is {self.product(axis)}, which is not {n}", "Make the sizes agree.")

    def solve_exact(self) -> bool:
        """Apply bare and composite axes; say whether anything new followed."""
        before = len(self.known)
        for index, at, axis, n in self.axes:
            unknown = self.unknown(axis)
            if axis.kind == "one" and n != 1:
                self.fail(index, at, f"the size of `1` is 1, got {n}", "Name the axis, or pass an axis of size 1.")
            elif axis.is_bare:
                self.learn(index, at, axis.names[0], n)
            elif axis.kind == "composite" and len(unknown) == 1:
                known = math.prod(self.known[name] for name in axis.names if name not in unknown)
                if known and n % known == 0:
                    self.learn(index, at, unknown[0], n // known)
                elif known or n:  # 0 times the unknown is 0 for every size, which says nothing
                    self.fail(
                        index,
                        at,
                        f"{n} is no multiple of {self.product(axis)} for any `{unknown[0]}`",
                        "Make the axis divisible, or change the given sizes.",
                    )
        return len(self.known) > before

    def solve_windows(self) -> bool:
        """Apply the affine axes with one unknown, all at once so that their order does not matter."""
        limits: dict[str, list[tuple[int, int, int]]] = {}
        exact: dict[str, list[tuple[int, int, int]]] = {}
        for index, at, axis, n in self.axes:
            unknown = self.unknown(axis)
            if not axis.is_window or len(unknown) != 1:
                continue
            name = unknown[0]
            term = next(term for term in axis.terms if term.name == name)
            if self.modes[index, at] == "valid":
                if all(self.known.get(other) != 0 for other in axis.names):
                    limits.setdefault(name, []).append((self.largest(index, at, axis, n, name), index, at))
            elif not term.whole or len(axis.terms) == 1:  # a boundary says nothing about the extent of a window
                exact.setdefault(name, []).append((-(-n // abs(term.coefficient)), index, at))
        for name, answers in exact.items():
            for size, index, at in answers:
                self.learn(index, at, name, size)
        for name, answers in limits.items():
            if name not in self.known:  # otherwise the final check of all reads decides
                size, index, at = min(answers)
                self.learn(index, at, name, size)
        return bool(exact or limits)

    def largest(self, index: int, at: int, axis: Axis, n: int, name: str) -> int:
        """Find the largest size of `name` for which `axis` reads only cells of `[0, n)`."""
        low, high = cells_read(axis, {**self.known, name: 1})
        if low < 0:
            self.fail_read(index, at, axis, low, n)
        coefficient = next(term.coefficient for term in axis.terms if term.name == name)
        if high >= n:
            return 0
        return (n - 1 - high) // coefficient + 1 if coefficient > 0 else low // -coefficient + 1

    def check_window(self, index: int, at: int, axis: Axis, n: int) -> None:
        if any(self.known[name] == 0 for name in axis.names):
            return
        mode = self.modes[index, at]
        if mode == "valid":
            low, high = cells_read(axis, self.known)
            if low < 0 or high >= n:
                self.fail_read(index, at, axis, low if low < 0 else high, n)
        elif mode != "zero" and n == 0:
            self.fail(index, at, f"boundary {mode!r} has no cell to read", "Use boundary 'zero' or a larger operand.")

    def learn(self, index: int, at: int, name: str, size: int) -> None:
        source = f"operand {index} of shape {self.shapes[index]}"
        if self.known.setdefault(name, size) != size:
            self.fail(
                index,
                at,
                f"`{name}` is {size} here, and {self.known[name]} by {self.origin[name]}",
                f"Make the two sizes of `{name}` equal, or use two names.",
            )
        self.origin.setdefault(name, source)

    def unknown(self, axis: Axis) -> list[str]:
        return [name for name in axis.names if name not in self.known]

    def product(self, axis: Axis) -> str:
        return " * ".join(str(self.known.get(name, name)) for name in axis.names)

    def fail(self, index: int, at: int, problem: str, remedy: str) -> NoReturn:
        raise SignatureError(
            message(
                f"operand {index}{self.of} does not fit its signature.",
                self.signature.show((index, at)),
                f"its shape is {self.shapes[index]}",
                problem,
                remedy=remedy,
            )
        )

    def fail_read(self, index: int, at: int, axis: Axis, cell: int, n: int) -> NoReturn:
        sizes = ", ".join(f"{name}={self.known[name]}" for name in axis.names if name in self.known)
        remedy = "Add an offset, or choose a boundary" if cell < 0 else "Pass a larger operand, or choose a boundary"
        self.fail(
            index,
            at,
            f"`{axis}`{' with ' + sizes if sizes else ''} reads cell {cell}, outside of [0, {n})",
            f"{remedy} other than 'valid'.",
        )

    def fail_unsolved(self, unsolved: list[str]) -> NoReturn:
        tensors = (*self.signature.operands, *self.signature.results)
        places = [
            (index, at)
            for index, tensor in enumerate(tensors)
            for at, axis in enumerate(tensor.axes)
            if not set(axis.names).isdisjoint(unsolved)
        ]
        names = ", ".join(f"`{name}`" for name in unsolved)
        shapes = ", ".join("a coordinate" if shape is None else str(shape) for shape in self.shapes)
        sizes = ", ".join(f"{name}=..." if name.isidentifier() else f"**{{'{name}': ...}}" for name in unsolved)
        raise SignatureError(
            message(
                f"the operands{self.of} do not give the size of {names}.",
                self.signature.show(*places),
                f"the operands are {shapes or '(none)'}",
                remedy=f"Give it by sizes=dict({sizes}).",
            )
        )

    @property
    def of(self) -> str:
        return f" of `{self.where}`" if self.where else ""


def _checked_size(size: object, signature: Signature, what: str) -> int:
    try:
        value = -1 if isinstance(size, bool) else operator.index(size)  # pyright: ignore[reportArgumentType]
    except TypeError:
        value = -1
    if value < 0:
        raise SignatureError(
            message(
                f"{what} of `{signature}` has no valid size.",
                f"expected an integer of at least 0, got {size!r}",
                remedy="Pass a size that is a non-negative integer.",
            )
        )
    return value
