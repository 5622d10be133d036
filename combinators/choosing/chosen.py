"""Where cells that are cut choose together in a program: at each `cond`, `while`, and by what they have come to.

A loop that ends when all rows are small, and `jnp.where(x.max(0) > 3, ...)` of what has been folded, are such choices;
`jnp.where(x > 3, ...)` is one of each cell. A map that compares `x.max(0)` is refused by its program; where that does
not tell how cells have met (a total by a `scan`), what chooses by it is such a choice as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from combinators.choosing.bounds import ANY, Bounds, bounds_of, bounds_of_number, is_decided
from combinators.choosing.kept import keeping
from combinators.declared.flow import OTHER, Flow, dims_of, joined
from combinators.declared.followed import of_constant, step
from combinators.equations.deciding import decides
from combinators.frozen import dataclass
from combinators.kernels.elementwise import CALLS, CELLWISE
from combinators.kernels.jaxprs import is_literal, programs_inside, scan_parts

Dims: TypeAlias = "frozenset[str]"
"""The dimensions of cells that a value is made of, among those that are cut."""

_NONE: Dims = frozenset()
# What a loop carries is followed for so many turns until nothing more enters.
_TURNS = 8


@dataclass(frozen=True)
class Cells:
    """Of which cells a value is made.

    Attributes:
      dims: the dimensions of those that are cut.
      flow: how those have entered.
      bounds: between which numbers it lies.
    """

    dims: Dims
    flow: Flow
    bounds: Bounds = ANY

    @cached_property
    def key(self) -> Hashable:
        """What tells it from others."""
        flow = self.flow
        entered = flow.lost, flow.pieced, flow.told, frozenset(flow.reads.items()), frozenset(flow.picked.items())
        return self.dims, self.bounds, flow.axes, entered

    @property
    def met(self) -> Dims:
        """The dimensions of which several cells may have met in one number of it."""
        return self.flow.lost.union(self.flow.reads, self.flow.picked)


@dataclass(frozen=True, eq=False)
class Choice:
    """An equation at which cells that are cut choose.

    Attributes:
      equation: of a jaxpr.
      dims: of these cells, and of all others that it is given.
      together: whether some of these are known to have met; else there may be a choice for each, if there are so many.
    """

    equation: Any
    dims: Dims
    together: bool


class Chosen:
    """Follows a program to the equations at which cells that are cut choose.

    Args:
      cut: the dimensions of these cells.
      folds: those of them that are folded.
      compares: whether what they have come to may choose without a `cond`.
      found: what has been found before.
    """

    def __init__(
        self, cut: Dims, folds: Dims, *, compares: bool = True, found: dict[int, Choice] | None = None
    ) -> None:
        self._cut, self._folds, self._compares = cut, folds, compares
        self._found = {} if found is None else found
        self._keeping: set[int] = set()
        self._composed = _NONE
        # Loops in loops are followed to the same places again and again.
        self._known: dict[Hashable, list[Cells]] = {}

    @cached_property
    def _quiet(self) -> Chosen:
        """What follows the same cells through turns of loops, for what these hand on."""
        return Chosen(self._cut, self._folds, compares=False)

    def of(self, program: Any, operands: Sequence[Cells]) -> list[Choice]:
        """These equations of a closed jaxpr, each once."""
        # Windows read the cells beside each; maps of these are asked of numbers.
        self._composed = _NONE.union(*(each.flow.lost for each in operands)) - self._folds
        self._follow(program, operands)
        return list(self._found.values())

    def _follow(self, program: Any, given: Sequence[Cells]) -> list[Cells]:
        asked = id(program), *(each.key for each in given)
        if asked not in self._known:
            self._known[asked] = self._followed(program, given)
        return self._known[asked]

    def _followed(self, program: Any, given: Sequence[Cells]) -> list[Cells]:
        jaxpr, constants = getattr(program, "jaxpr", program), getattr(program, "consts", ())
        known = dict(zip(jaxpr.invars, given, strict=True))
        known.update(
            (each, Cells(_NONE, of_constant(value))) for each, value in zip(jaxpr.constvars, constants, strict=False)
        )

        def made_of(atom: Any) -> Cells:
            nothing = Flow((None,) * len(_shape(atom)))
            if is_literal(atom):
                return Cells(_NONE, nothing, bounds_of_number(atom.val))
            return known.get(atom) or Cells(_NONE, nothing)

        self._keeping |= keeping(jaxpr)
        for equation in _needed(jaxpr):
            made = self._step(equation, list(map(made_of, equation.invars)))
            known.update(zip(equation.outvars, made, strict=True))
        return list(map(made_of, jaxpr.outvars))

    def _step(self, equation: Any, given: list[Cells]) -> list[Cells]:
        name, params, inner = equation.primitive.name, equation.params, list(programs_inside(equation))
        if name == "cond":
            branches = [self._follow(branch, given[1:]) for branch in params["branches"]]
            self._note(equation, given[0].dims)
            return self._unknown(equation.outvars, [_dims((given[0], *each)) for each in zip(*branches, strict=True)])
        if name == "while":
            asked, fixed = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            carry = self._carried(params["body_jaxpr"], given[asked:fixed], given[fixed:], [])
            # What is compared to end a loop is told by how often it turns.
            turning = Chosen(self._cut, self._folds, compares=False, found=self._found)
            chooses = turning._follow(params["cond_jaxpr"], [*given[:asked], *carry])[0].dims
            self._note(equation, chooses)
            return [_chosen_by(chooses, each) for each in carry]
        if name == "scan":
            fixed, carries = scan_parts(equation)
            last, body = fixed + carries, params["jaxpr"]
            # A turn is given the cells at one place, each by itself; in what it hands on they meet those of the next.
            slices, meeting = list(map(_slice, given[last:])), list(map(_met_slice, given[last:]))
            carry = self._quiet._carried(body, given[:fixed], given[fixed:last], meeting)
            made = self._follow(body, [*given[:fixed], *carry, *slices])[carries:]
            return [*carry, *(_stacked(each, given[last:], self._cut) for each in made)]
        if name in CALLS and inner and len(getattr(inner[0], "jaxpr", inner[0]).invars) == len(given):
            return self._follow(inner[0], given)
        if name == "gather" and not given[0].dims:
            if self._compares and decides(equation) and not is_decided(equation, [each.bounds for each in given]):
                self._note_met(equation, given[1].dims, given[1:])
            return [_looked_up(equation, given[1])]
        # What else holds programs, such as a kernel of Pallas, is run by itself, and cannot be watched.
        dims, bounds = _dims(given), [each.bounds for each in given]
        flows = (
            step(equation, [each.flow for each in given], self._cut, {})
            if dims
            else [Flow((None,) * len(_shape(out))) for out in equation.outvars]
        )
        made = [Cells(dims, *each) for each in zip(flows, bounds_of(equation, bounds), strict=True)]
        # Where cells are looked up, and not in a table beside them, places are found by what looks (`searchsorted`).
        if self._compares and name != "gather" and decides(equation) and id(equation) not in self._keeping:
            # What it reduces it may be the first to bring together; that is no choice of what was.
            values = made[:1] if name in CELLWISE else given
            if not is_decided(equation, bounds):
                self._note_met(equation, dims, values)
        return made

    def _carried(self, body: Any, fixed: list[Cells], carry: list[Cells], slices: list[Cells]) -> list[Cells]:
        """What a loop carries: what one turn makes of cells that are cut the next one takes."""
        carry = [Cells(each.dims, each.flow) for each in carry]
        for _ in range(_TURNS):
            after = self._follow(body, [*fixed, *carry, *slices])[: len(carry)]
            grown = list(map(_either, carry, after))
            if grown == carry:
                return carry
            carry = grown
        variables = getattr(body, "jaxpr", body).invars[len(fixed) :][: len(carry)]
        return self._unknown(variables, [_dims([*carry, *fixed, *slices])] * len(carry))

    def _unknown(self, variables: Sequence[Any], dims: Sequence[Dims]) -> list[Cells]:
        """Values of which it is not known how cells have entered."""
        return [
            Cells(each, Flow((None,) * len(_shape(variable)), lost=each & self._cut))
            for variable, each in zip(variables, dims, strict=True)
        ]

    def _note_met(self, equation: Any, dims: Dims, values: Sequence[Cells]) -> None:
        """Cells that have met in some values choose; where that is not known of them, each may be by itself."""
        met, lost = (_NONE.union(*each) for each in zip(*((each.met, each.flow.lost) for each in values), strict=True))
        if dims & met - self._composed:
            self._note(equation, dims, together=bool(dims & (self._folds & met | met - lost)))

    def _note(self, equation: Any, chooses: Dims, *, together: bool = False) -> None:
        if chooses:
            # A program that is called in two places is one and the same there.
            before = self._found.get(id(equation), Choice(equation, _NONE, together))
            self._found[id(equation)] = Choice(equation, before.dims | chooses, before.together or together)


def _needed(jaxpr: Any) -> list[Any]:
    """The equations of which results come, in their order."""
    read = {each for each in jaxpr.outvars if not is_literal(each)}
    found: list[Any] = []
    for equation in reversed(jaxpr.eqns):
        if not read.isdisjoint(equation.outvars):
            found.append(equation)
            read.update(each for each in equation.invars if not is_literal(each))
    return found[::-1]


def _either(one: Cells, other: Cells) -> Cells:
    """A value that is one of two."""
    flow = joined([one.flow, other.flow], len(one.flow.axes), "a loop")
    return Cells(one.dims | other.dims, flow)


def _chosen_by(dims: Dims, cells: Cells) -> Cells:
    """A value that some cells have chosen."""
    return Cells(cells.dims | dims, replace(cells.flow, lost=cells.flow.lost | dims))


def _looked_up(equation: Any, places: Cells) -> Cells:
    """What is taken of something that is the same for all cells: for each place by itself."""
    beside = equation.params["dimension_numbers"].offset_dims
    along = iter(places.flow.axes)
    tags = [None if axis in beside else next(along) for axis in range(len(_shape(equation.outvars[0])))]
    return Cells(places.dims, places.flow.along(tags))


def _slice(cells: Cells) -> Cells:
    """What one turn of a loop is given: one cell of what lies along the first axis, by itself if none have met."""
    alone = dims_of(cells.flow.axes[:1]) - dims_of(cells.flow.axes[1:]) - cells.met
    return Cells(cells.dims - alone, cells.flow.along(cells.flow.axes[1:]))


def _met_slice(cells: Cells) -> Cells:
    """The same, of all turns together."""
    flow = cells.flow.reading(cells.flow.axes[:1], "a loop")
    return Cells(cells.dims, flow.along(cells.flow.axes[1:]))


def _stacked(row: Cells, rows: Sequence[Cells], cut: Dims) -> Cells:
    """What all turns of a loop give, beside each other along the first axis, as what they were given was."""
    dims = row.dims.union(*(each.dims for each in rows))
    along = {each.flow.axes[0] for each in rows} - {None}
    tag = next(iter(along), None) if len(along) < 2 else OTHER
    unknown = dims & cut if tag is OTHER else _NONE
    return Cells(dims, replace(row.flow, axes=(tag, *row.flow.axes), lost=row.flow.lost | unknown))


def _dims(values: Sequence[Cells]) -> Dims:
    return _NONE.union(*(each.dims for each in values))


def _shape(atom: Any) -> tuple[int, ...]:
    return getattr(atom.aval, "shape", ())
