"""From what users write to what laws speak about: monoids, aggregators, arrows, graphs and plans."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from hypothesis.strategies import SearchStrategy

from combinators.aggregator import Aggregator
from combinators.arrow import Arrow, as_arrow
from combinators.errors import message
from combinators.graph import Graph
from combinators.leaf import Leaf
from combinators.monoid import Monoid
from combinators.operation import Operation
from combinators.program import program
from combinators.sizes import axis_extent
from combinators.tensor_type import TensorType
from combinators.tracing import trace
from laws.aggregator import AggregatorSubject
from laws.arrow import ArrowSubject
from laws.carrier import Carrier, MonoidSubject, same_state
from laws.catalogue import select
from laws.cells import Struct
from laws.errors import LawError
from laws.examples_of import examples_of, itself, pair
from laws.law import Law
from laws.leaf import leaves_of
from laws.plan import PlanSubject
from laws.subject import Subject

F32, I32 = Struct((), jnp.float32), Struct((), jnp.int32)
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
    """

    piece: Any
    types: Sequence[Any] | None = None
    lift: Callable[..., Any] | None = None
    values: Any = None
    observe: Callable[[Any], Any] | None = None
    laws: str | Sequence[str] | None = None
    name: str | None = None

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
        return select(self._families, self.laws)

    @property
    def _families(self) -> tuple[str, ...]:
        piece = self.piece
        if isinstance(piece, Monoid):
            return ("monoid",)
        if isinstance(piece, Aggregator):
            return ("aggregator", "monoid")
        if _is_plan(piece):
            return ("plan",)
        if isinstance(piece, Graph) or (isinstance(piece, Leaf) and self.laws is None):
            return LEAF
        if isinstance(piece, Arrow) or hasattr(piece, "__tapestry_arrow__") or callable(piece):
            return (*LEAF, *ARROW)
        raise LawError(
            message(
                "nothing is known of the laws of this.",
                f"got {type(piece).__name__}: {piece!r:.80}",
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
            return [MonoidSubject(piece, carrier, self.called) for carrier in _carriers(self, piece)]
        if isinstance(piece, Aggregator):
            return _of_aggregator(self, piece)
        if _is_plan(piece):
            return [PlanSubject(piece, self.called, self.values)]
        if isinstance(piece, Graph):
            return [*leaves_of(piece, self.called, self.values)]
        arrow = _arrow(piece)
        types = self.types if self.types is not None else _default_types(arrow, self.called)
        found: list[Subject] = []
        if families & set(LEAF):
            found += leaves_of(trace(arrow, *types), self.called, self.values)
        if families & set(ARROW):
            found.append(ArrowSubject(arrow, types, self.called, self.values))
        return found


def _is_plan(piece: Any) -> bool:
    return isinstance(getattr(piece, "graph", None), Graph) and callable(getattr(piece, "compile", None))


def _arrow(piece: Any) -> Arrow[Any, Any]:
    is_arrow = isinstance(piece, Arrow) or hasattr(piece, "__tapestry_arrow__")
    return as_arrow(piece) if is_arrow else program(piece)


def _structs(types: Sequence[Any]) -> tuple[Struct, ...]:
    return tuple(Struct(tuple(kind.shape), kind.dtype) for kind in types)


def _carriers(asked: Asked, monoid: Monoid) -> Sequence[Carrier]:
    """How states of a monoid are made: as the user says, as known, or, for one number, as itself."""
    observe = asked.observe if asked.observe is not None else same_state
    known = examples_of(monoid)
    if asked.values is not None:
        if not isinstance(asked.values, SearchStrategy) and not len(asked.values):
            raise LawError(message(f"`{asked.called}`: there are no values.", remedy="Pass one state or more."))
        return (Carrier(values=asked.values, observe=observe),)
    if asked.lift is not None:
        count = _arity(asked.lift)
        elements = _structs(asked.types) if asked.types is not None else (F32,) * count
        return (Carrier(elements, asked.lift, observe=observe),)
    if asked.types is not None:
        elements = _structs(asked.types)
        if known:
            return (dataclasses.replace(known[0], elements=elements),)
        lift = itself if len(elements) == 1 else pair if len(elements) == 2 else _as_tuple
        return (Carrier(elements, lift, observe=observe),)
    if known:
        return known if asked.observe is None else [dataclasses.replace(c, observe=observe) for c in known]
    identity = monoid.identity
    if isinstance(identity, bool):
        return (Carrier((Struct((), jnp.bool_),), itself, observe=observe),)
    if isinstance(identity, int | float) and _combines(monoid, F32):
        carriers = [Carrier((F32,), itself, observe=observe)]
        return carriers if isinstance(identity, float) else [*carriers, Carrier((I32,), itself, observe=observe)]
    raise LawError(
        message(
            f"it is not known how states of `{asked.called}` are made.",
            "states are drawn by operations (identity, lift and combine), since raw ones may be reached by no fold",
            remedy="Pass lift=(a function of one element), or values=[states], or types=[types of the state's leaves].",
        )
    )


def _combines(monoid: Monoid, cell: Struct) -> bool:
    """Whether a state can be a single number; an identity of 0 may stand for a tuple of zeros as well."""
    try:
        jax.eval_shape(monoid.merge, cell, cell)
    except (TypeError, ValueError, AttributeError, IndexError):
        return False
    return True


def _as_tuple(*elements: Any) -> Any:
    return elements


def _of_aggregator(asked: Asked, aggregator: Aggregator) -> list[Subject]:
    known = examples_of(aggregator.monoid)
    special: tuple[tuple[float, ...], ...] = ()
    if asked.types is not None:
        elements = _structs(asked.types)
    else:
        elements, special = _elements(asked, aggregator, known)
    observe = asked.observe or (known[0].observe if known else aggregator.present)
    infinite = all(carrier.infinite for carrier in known) if known else False
    carrier = Carrier(elements, aggregator.lift, observe=observe, special=special, infinite=infinite)
    return [
        AggregatorSubject(aggregator, elements, special, asked.called),
        MonoidSubject(aggregator.monoid, carrier, asked.called),
    ]


def _elements(
    asked: Asked, aggregator: Aggregator, known: Sequence[Carrier]
) -> tuple[tuple[Struct, ...], tuple[tuple[float, ...], ...]]:
    """Types that `lift` takes: those of its monoid's examples, or numbers."""
    candidates = [(carrier.elements, carrier.special) for carrier in known]
    candidates += [((F32,) * count, ()) for count in (_arity(aggregator.lift), 1, 2)]
    for elements, special in candidates:
        try:
            jax.eval_shape(aggregator.lift, *elements)
        except (TypeError, ValueError, AttributeError):
            continue
        return elements, special
    raise LawError(
        message(
            f"it is not known which elements `{asked.called}` takes.",
            remedy="Pass types=[one jax.ShapeDtypeStruct for every input of lift].",
        )
    )


def _arity(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return max(1, sum(p.kind in kinds and p.default is p.empty for p in parameters))


def _default_types(arrow: Arrow[Any, Any], called: str) -> list[TensorType]:
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
