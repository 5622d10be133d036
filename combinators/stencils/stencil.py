"""Stencils: a map that reads the cells around each cell, written as a function of one cell and its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax

from combinators.arguments import is_whole, read_function, read_optional_name
from combinators.arrows.arrow import Arrow
from combinators.errors import CompositionError, KernelError, SignatureError, TapestryError, first_line, message, spelt
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.kernels.elementwise import check_elementwise
from combinators.kernels.kernel import short_name
from combinators.kernels.settled import settled
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of
from combinators.recording.value import Value
from combinators.stencils.boundary import check_side, read_boundary, read_reach
from combinators.stencils.neighbours import Ends, Field, Neighbours, Offsets, Side, StencilKernel


def stencil(
    cell: Callable[..., Any],
    reach: Mapping[str, tuple[int, int]],
    *,
    boundary: Any = "periodic",
    name: str | None = None,
) -> Stencil:
    """A map that reads the neighbours of each cell: `tp.stencil(lambda u: u[-1] - 2 * u[0] + u[1], {"x": (-1, 1)})`.

    A window that only one offset is read of is no window: of every field no more cells are exchanged than `cell` reads.

    Args:
      cell: a function of one cell of each field. `u[-1, 0]` is the neighbour at these offsets, in the order of `reach`;
        `u.at(x=-1)` names them, `u.here` is the cell itself. Operands without axes come as numbers. It gives the new
        cell, or a tuple of them, one for each result.
      reach: dimension to the lowest and highest offset.
      boundary: what answers outside: `periodic`, `reflect`, `edge`, `zero`, a number, `one-sided` (the line through the
        last two cells, which makes central differences one-sided), or `valid` (the result is smaller); or a mapping
        from dimensions to one of these. A pair says it for both ends: `{"x": (1.0, "one-sided")}`.
      name: for paths and errors.

    Returns:
      An arrow. Fields have the dimensions of the stencil by name; where their axes have no names, these are the last
      ones. Other axes are batches.

    Raises:
      SignatureError: for a reach or a boundary that cannot be; (when applied) for fields of different sizes, and for
        a number outside that is none of their type.
      CompositionError: (when applied) for operands that are no fields.
      KernelError: (when applied) where `cell` reads beyond its reach, mixes cells otherwise, or gives none.

    Example:
      >>> import jax.numpy as jnp
      >>> u = jnp.array([1.0, 2.0, 4.0, 8.0])
      >>> stencil(lambda u: u[1] - u[-1], {"x": (-1, 1)})(u).tolist()
      [-6.0, 3.0, 6.0, -3.0]
      >>> stencil(lambda u: (u[1] - u[-1]) / 2, {"x": (-1, 1)}, boundary="one-sided")(u).tolist()
      [1.0, 1.5, 3.0, 4.0]
    """
    read_function(cell, "the function of a cell in tp.stencil", KernelError)
    called = read_optional_name(name, "name= of tp.stencil") or short_name(cell)
    spans = read_reach(reach)
    return Stencil(cell, spans, read_boundary(boundary, [dim for dim, _ in spans]), called)


class Stencil(Arrow[Any, Any]):
    """A map that reads the neighbours of each cell; see `stencil`."""

    def __init__(
        self,
        cell: Callable[..., Any],
        reach: tuple[tuple[str, tuple[int, int]], ...],
        boundary: tuple[tuple[Side, Side] | str, ...],
        name: str,
    ) -> None:
        self._cell, self._reach, self._boundary, self.name = settled(cell), reach, boundary, name
        self._dims = tuple(dim for dim, _ in reach)

    @property
    def arity(self) -> int | None:
        """The fields and scalars that the function of a cell takes, as far as it tells."""
        return None

    def apply(self, *values: Any) -> Any:
        """One operation on fields and scalars."""
        recording = trace_of(values, self.name)
        fields = [value for value in values if value.ndim]
        if not fields:
            raise CompositionError(
                message(f"`{self.name}` takes a field along {', '.join(self._dims)}", remedy="Pass one with axes.")
            )
        named = [self._named(number, value) for number, value in enumerate(values)]
        self._check_grid(values, named)
        first = next(at for at, value in enumerate(values) if value.ndim)
        order = list(dict.fromkeys([*named[first], *(dim for names in named for dim in names)]))
        reads, results = self._probe(values, len(order))
        return recording.apply(self._operation(values, named, order, reads, results), values)

    def __repr__(self) -> str:
        return f"Stencil({self.name}: {', '.join(f'{dim} {low:+}..{high:+}' for dim, (low, high) in self._reach)})"

    def _named(self, number: int, value: Value) -> list[str]:
        """Local names of an operand's axes: the dimensions of the stencil by name, else the last axes in order."""
        if not value.ndim:
            return []
        names, dims = value.names, self._dims
        if all(dim in names for dim in dims):
            used = {*names}
            return [name if name is not None else _free(f"open{number}_{at}", used) for at, name in enumerate(names)]
        lead = value.ndim - len(dims)
        tail = names[lead:] if lead >= 0 else ()
        if lead < 0 or any(name is not None and name in dims for name in names) or None not in tail:
            raise CompositionError(
                message(
                    f"`{self.name}` takes fields along {', '.join(dims)}",
                    f"operand {number} is {value!r}",
                    remedy="Name its axes so, or rename the dimensions of the stencil.",
                )
            )
        used = {*names, *dims}
        ahead = enumerate(names[:lead])
        return [*(name if name is not None else _free(f"lead{lead - at}", used) for at, name in ahead), *dims]

    def _check_grid(self, values: Sequence[Value], named: Sequence[list[str]]) -> None:
        """Fields have the same cells: a window has a boundary, and would take any number of them."""
        for dim in self._dims:
            found = {
                n: v.shape[names.index(dim)] for n, (v, names) in enumerate(zip(values, named, strict=True)) if v.ndim
            }
            if len({*found.values()}) > 1:
                raise SignatureError(
                    message(
                        f"`{self.name}` takes fields of one grid; these differ along `{dim}`",
                        ", ".join(f"operand {number} has {size} cells" for number, size in found.items()),
                        remedy=f"Give all fields as many cells along `{dim}`.",
                    )
                )

    def _probe(self, values: Sequence[Value], rank: int) -> tuple[list[set[Offsets]], int]:
        """The offsets that are read of each operand, and how many cells come out."""
        read: list[set[Offsets]] = [set() for _ in values]

        def run(*arrays: Any) -> Any:
            made = self._cell(*(self._told(*pair) for pair in zip(read, arrays, strict=True)))
            if any(isinstance(each, Neighbours) for each in jax.tree.leaves(made)):
                raise self._no_cells(made)
            return made

        structs = [jax.ShapeDtypeStruct((2,) * (rank if value.ndim else 0), value.dtype) for value in values]
        try:
            made = jax.eval_shape(run, *structs)
        except TapestryError:
            raise
        except Exception as error:
            if (taken := self._whole(error)) is not None:
                raise taken from error
            raise KernelError(
                message(
                    f"tp.stencil({self.name}) cannot be called on cells and their neighbours",
                    first_line(error),
                    remedy="Let it take every field and number, and read cells: u.here, u[-1], u.at(x=1).",
                )
            ) from error
        found = made if type(made) is tuple else (made,)
        if not found or not all(getattr(each, "shape", None) == (2,) * rank for each in found):
            raise self._no_cells(made)
        check_elementwise(run, structs, f"tp.stencil({self.name})")
        return read, len(found)

    def _whole(self, error: Exception) -> KernelError | None:
        """The error for a field that stands where a cell is meant, or for a choice by cells, which are many."""
        if isinstance(error, TypeError) and Neighbours.__name__ in str(error):
            return KernelError(
                message(
                    f"tp.stencil({self.name}) computes with a field and all its neighbours at once",
                    first_line(error),
                    remedy="Read a cell: u.here is the cell itself, u[-1] and u.at(x=1) are neighbours.",
                )
            )
        told = str(error)
        if isinstance(error, jax.errors.ConcretizationTypeError) or "truth value" in told or "Only scalar" in told:
            return KernelError(
                message(
                    f"tp.stencil({self.name}) asks for the number in one cell, by `if`, `and`, `while` or `float`",
                    "it is called once, for all cells",
                    remedy="Choose cell by cell: jnp.where(u.here > 0, u[1], u[-1]).",
                )
            )
        return None

    def _no_cells(self, made: Any) -> KernelError:
        return KernelError(
            message(
                f"tp.stencil({self.name}) gives something else than cells",
                f"got {spelt(made, 120)}",
                remedy="Return a new cell of the fields (u.here is one), or a tuple of them.",
            )
        )

    def _told(self, read: set[Offsets], array: Any) -> Any:
        if not array.ndim:
            return array

        def note(offsets: Offsets) -> Any:
            inside = len(offsets) == len(self._reach) and all(map(is_whole, offsets))
            if not inside or not all(
                low <= o <= high for o, (_, (low, high)) in zip(offsets, self._reach, strict=True)
            ):
                raise KernelError(
                    message(
                        f"tp.stencil({self.name}) reads a cell beyond its reach",
                        f"offsets {offsets}, reach {dict(self._reach)}",
                        remedy="Give one offset for each dimension, and a reach that holds all of them.",
                    )
                )
            read.add(offsets)
            return array

        return Neighbours(self._dims, note)

    def _operation(
        self,
        values: Sequence[Value],
        named: Sequence[list[str]],
        order: list[str],
        reads: Sequence[set[Offsets]],
        results: int,
    ) -> Operation:
        sizes: dict[str, int] = {}
        modes: list[str] = []
        operands: list[Operand] = []
        fields: list[Field] = []
        for number, (value, names, read) in enumerate(zip(values, named, reads, strict=True)):
            spans = [self._span(at, read) if value.ndim else (0, 0) for at in range(len(self._dims))]
            fields.append(Field(tuple(map(order.index, names)), *zip(*spans, strict=True)))
            axes: list[Axis] = []
            for name in names:
                low, high = spans[self._dims.index(name)] if name in self._dims else (0, 0)
                if low == high == 0:
                    axes.append(Axis("affine", (Term(name),)))
                    continue
                window = _free(f"{name}_{number}", {*order, *sizes})
                sizes[window] = high - low + 1
                mode = self._boundary[self._dims.index(name)]
                modes.append(mode if isinstance(mode, str) else "edge")
                offset = 0 if mode == "valid" else low
                axes.append(Axis("affine", (Term(name), Term(window, 1, True)), offset))
            operands.append(Operand(tuple(axes)))
        ends = tuple(self._ends(values, named, fields))
        result = Operand(tuple(Axis("affine", (Term(name),)) for name in order))
        signature = Signature((*operands, *(Operand(coordinate=dim) for dim, _ in ends)), (result,) * results)
        places = tuple(map(order.index, self._dims))
        kernel = StencilKernel(self._cell, self._dims, places, tuple(fields), len(order), ends)
        boundary = modes[0] if len(set(modes)) == 1 else tuple(modes) or "valid"
        return Operation(signature, kernel, sizes=tuple(sorted(sizes.items())), boundary=boundary, name=self.name)

    def _span(self, at: int, read: set[Offsets]) -> tuple[int, int]:
        """The offsets that a field's block has along a dimension: those that are read, and what answers outside."""
        mode = self._boundary[at]
        if mode == "valid":
            return self._reach[at][1]
        low, high = min(0, *(o[at] for o in read), 0), max(0, *(o[at] for o in read), 0)
        below, above = (None, None) if isinstance(mode, str) else mode
        mirrored = {"reflect": (-low, -high), "one-sided": (int(low < 0), -int(high > 0))}
        wider = max(high, mirrored.get(str(below), (0, 0))[0]), min(low, mirrored.get(str(above), (0, 0))[1])
        return wider[1], wider[0]

    def _ends(
        self, values: Sequence[Value], named: Sequence[list[str]], fields: Sequence[Field]
    ) -> Sequence[tuple[str, Ends]]:
        """The dimensions that are answered cell by cell."""
        found: list[tuple[str, Ends]] = []
        for at, (dim, mode) in enumerate(zip(self._dims, self._boundary, strict=True)):
            if isinstance(mode, str):
                continue
            size = next(v.shape[names.index(dim)] for v, names in zip(values, named, strict=True) if v.ndim)
            least = max(field.high[at] - field.low[at] for field in fields)
            if size <= least and any(side in ("one-sided", "reflect") for side in mode):
                raise SignatureError(
                    message(
                        f"`{self.name}` reads {least + 1} cells along `{dim}`, which has {size}",
                        f"boundary {mode}",
                        remedy="Use more cells, or the boundary 'edge'.",
                    )
                )
            for field, value in zip(fields, values, strict=True):
                for side, is_read in zip(mode, (field.low[at] < 0, field.high[at] > 0), strict=True):
                    if is_read:
                        check_side(side, value.dtype, dim, self.name)
            found.append((dim, Ends(size, *mode)))
        return found


def _free(name: str, used: Collection[str | None]) -> str:
    while name in used:
        name += "_"
    return name
