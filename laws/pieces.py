"""From what users write to what laws speak about: monoids, aggregators, arrows, graphs and plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from combinators.aggregation.aggregator import Aggregator
from combinators.arrows.arrow import Arrow, as_arrow
from combinators.arrows.program import program
from combinators.arrows.tracing import trace
from combinators.errors import TapestryError, first_line, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.extent import axis_extent
from combinators.index_space.tensor_type import TensorType
from combinators.leaves.leaf import Leaf
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from combinators.recording.remedies import NoSuchAttribute
from laws.catalogue import every_family, select
from laws.counterexamples.known import KnownFailing
from laws.errors import LawError
from laws.given import Given, resolve
from laws.law import Law
from laws.options import checked_options
from laws.subject import Subject
from laws.subjects.arrow import ArrowSubject
from laws.subjects.carrier import MonoidSubject
from laws.subjects.carriers import aggregator_subjects, check_identity, monoid_subjects
from laws.subjects.leaf import leaves_of
from laws.subjects.plan import PlanSubject
from laws.subjects.structures import Semiring, Structure, StructureSubject, first_monoid

LEAF = ("map", "reduce", "scan")
ARROW = ("arrow", "choice", "feedback")


@final
@dataclass(frozen=True)
class Asked:
    """What to check, and with what.

    Attributes:
      piece: a monoid, aggregator, arrow, function of values, graph or plan.
      types: of what a monoid's or aggregator's `lift` takes; of an arrow's operands.
      lift: of a monoid: cells of one element -> state.
      values: of a monoid: states, as a list or a hypothesis strategy; of an arrow or plan: lists of operands.
      observe: of a monoid: state -> what counts of it.
      laws: names to which the laws are restricted.
      name: what messages call the piece.
      known: laws that are known to fail.
    """

    piece: Any
    types: Sequence[Any] | None = None
    lift: Callable[..., Any] | None = None
    values: Any = None
    observe: Callable[[Any], Any] | None = None
    laws: str | Sequence[str] | None = None
    name: str | None = None
    known: Sequence[KnownFailing] = ()

    @classmethod
    def of(cls, piece: Any, **options: Any) -> Asked:
        """Read a piece, and the options that are passed or given with it."""
        found, chosen = resolve(piece, options)
        name = chosen.get("name")
        called = cls(found, name=name if isinstance(name, str) else None).called
        asked = cls(found, **checked_options(called, chosen))
        if asked.laws is None or options.get("known"):
            return asked
        # What is declared with a piece is of all its laws; who asks for some of them asks for no others.
        names = {law.name for law in asked.selected}
        return replace(asked, known=tuple(entry for entry in asked.known if entry.law in names))

    @property
    def called(self) -> str:
        """The name of the piece."""
        found = self.name or getattr(self.piece, "name", None) or getattr(self.piece, "__name__", None)
        return str(found or type(self.piece).__name__).replace(" ", "")

    @property
    def selected(self) -> tuple[Law, ...]:
        """The laws that were asked for.

        Raises:
          LawError: when a name is unknown, or the piece is nothing that has laws.
        """
        return select(
            self._families, self.laws, *([_taken_as_program(self.called)] if _is_function(self.piece) else [])
        )

    def divided(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Some names of laws or families: those that the piece has, and those that only others have.

        Raises:
          LawError: when a name is no law's and no family's, or the piece is nothing that has laws.
        """
        families = replace(self, laws=tuple(names))._families
        own = [name for name in names if any(law.family in families for law in select(every_family, name))]
        return own, [name for name in names if name not in own]

    @property
    def _families(self) -> tuple[str, ...]:
        piece = self.piece
        if isinstance(piece, Monoid):
            return ("monoid",)
        if isinstance(piece, Aggregator):
            return ("aggregator", "monoid")
        if isinstance(piece, Structure):
            return (type(piece).__name__.lower(), "monoid")
        if is_plan(piece):
            return ("plan",)
        if isinstance(piece, Graph) or (isinstance(piece, Leaf) and self.laws is None):
            return LEAF
        if isinstance(piece, Arrow) or hasattr(piece, "__tapestry_arrow__") or callable(piece):
            return (*LEAF, *ARROW)
        raise LawError(
            message(
                "nothing is known of the laws of this.",
                f"got {type(piece).__name__}: {spelt(piece)}",
                remedy="Pass a tp.Monoid, a tp.Aggregator, an arrow, a tp.Graph or a tp.Plan.",
            )
        )

    def subjects(self) -> list[Subject]:
        """What the laws are checked on.

        Raises:
          LawError: when it is not known how to draw states or operands.
        """
        piece, families = self.piece, {law.family for law in self.selected}
        if isinstance(piece, Monoid):
            return [*monoid_subjects(self, piece)]
        if isinstance(piece, Aggregator):
            return aggregator_subjects(self, piece)
        if isinstance(piece, Structure):
            return self._of_structure(piece)
        if is_plan(piece):
            return [PlanSubject(piece, self.called, self.values)]
        if isinstance(piece, Graph):
            return [*leaves_of(piece, self.called, self.values)]
        function: Callable[..., Any] = piece
        arrow = as_arrow(piece) if has_laws(piece) else program(function)
        types = self.types if self.types is not None else _default_types(arrow, self.called, _is_function(piece))
        if _is_function(piece):
            _check_program(arrow, types, self.called)
        found: list[Subject] = []
        if families & set(LEAF):
            found += leaves_of(trace(arrow, *types), self.called, self.values)
        if families & set(ARROW):
            found.append(ArrowSubject(arrow, types, self.called, self.values))
        return found

    def _of_structure(self, structure: Structure) -> list[Subject]:
        """The structure, and its monoids on the same states; those of a homomorphism's target are not drawn."""
        drawn = monoid_subjects(self, first_monoid(structure))
        found: list[Subject] = [StructureSubject(structure, states, self.called) for states in drawn]
        if isinstance(structure, Semiring):
            for s in drawn:
                check_identity(f"{self.called}.multiply", structure.multiply, s.carrier.cell_type)
            product = [MonoidSubject(structure.multiply, s.carrier, f"{self.called}.multiply") for s in drawn]
            return [*found, *drawn, *product]
        return [*found, *drawn]


def is_plan(piece: Any) -> bool:
    """Whether it has a graph, and compiles."""
    return isinstance(getattr(piece, "graph", None), Graph) and callable(getattr(piece, "compile", None))


def has_laws(piece: Any) -> bool:
    """Whether it has laws as it is, and not only as a program that is traced."""
    known = isinstance(piece, Monoid | Aggregator | Structure | Graph | Arrow | Given)
    return known or hasattr(piece, "__tapestry_arrow__") or is_plan(piece)


def _is_function(piece: Any) -> bool:
    """Whether it is a plain function, which is taken as a program of values."""
    return callable(piece) and not has_laws(piece)


def _taken_as_program(called: str) -> str:
    return f"`{called}` is a function, and is taken as a program; one that makes a piece has to be called first"


def _check_program(arrow: Arrow[Any, Any], types: Sequence[Any], called: str) -> None:
    """Trace a function once, where an error can still say what functions are taken as.

    Raises:
      LawError: when it does with values what only arrays can.
    """
    try:
        trace(arrow, *types)
    except Exception as error:
        if isinstance(error, TapestryError) and not isinstance(error, NoSuchAttribute):
            raise
        raise LawError(
            message(
                f"`{called}` cannot be traced as a program.",
                _taken_as_program(called),
                first_line(error),
                remedy="Wrap a function of arrays as tp.Map(function), or apply arrows to the values.",
            )
        ) from error


def _default_types(arrow: Arrow[Any, Any], called: str, is_function: bool) -> list[TensorType]:
    """Small types that fit a leaf's signature; float32."""
    operation = getattr(arrow, "operation", None)
    if isinstance(operation, Operation):
        return _fitting(operation)
    count: int | None = getattr(arrow, "arity", None)
    if isinstance(arrow, Leaf) and count is not None:
        return [TensorType((4, 3))] * count
    raise LawError(
        message(
            f"it is not known which operands `{called}` takes.",
            *([_taken_as_program(called)] if is_function else []),
            "on a command line: name a tp.laws.given(piece, types=[...])",
            remedy="Pass types=[one tp.TensorType, jax.ShapeDtypeStruct or array for every operand].",
        )
    )


def _fitting(operation: Operation) -> list[TensorType]:
    signature = operation.signature.expand(1)
    windowed = {t.name for o in signature.operands for a in o.axes if a.is_window for t in a.terms if t.whole}
    sizes = {dim: 3 if dim in windowed else 4 for dim in signature.dims} | dict(operation.sizes)
    found: list[TensorType] = []
    for operand in signature.operands:
        if operand.coordinate is not None:
            continue
        shape: list[int] = []
        for axis in operand.axes:
            if not axis.is_window:
                shape.append(math.prod(sizes[name] for name in axis.names))
            elif operation.boundary == "valid":
                shape.append(axis_extent(axis, sizes)[1])
            else:
                shape.append(next((abs(t.coefficient) * sizes[t.name] for t in axis.terms if not t.whole), 1))
        found.append(TensorType(shape))
    return found
