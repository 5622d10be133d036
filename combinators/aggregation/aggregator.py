"""Aggregators: a monoid together with the way in and the way out.

`lift` makes a state of one element, the monoid merges states, `present` turns a state into what the user asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, final

import jax

from combinators.aggregation.functions import After, Each, Fork, LiftEach, Mapped, OnHost, Then
from combinators.aggregation.grouped import (
    KeyedLift,
    KeyedMany,
    KeyedReference,
    MaskedLift,
    MaskedMany,
    MaskedReference,
    PresentHeld,
    Selector,
    Split,
    check_selector,
    read_keys,
)
from combinators.aggregation.inputs import check_cells, check_inputs, count_inputs, presented
from combinators.aggregation.segments import Flags, Labels, LastReference, PresentLast, SegmentLift, SegmentMany
from combinators.arguments import read_function
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.usable import check_together
from combinators.kernels.immutable import Immutable
from combinators.kernels.settled import settled
from combinators.merging.monoid import Monoid
from combinators.monoids.function import EachKey, function
from combinators.monoids.held import held
from combinators.monoids.runs import runs
from combinators.monoids.segmented import segmented
from combinators.numerics.reductions import ForkMany

# Stands for `LiftEach` until construction, so that the field is a function for all who read it.
_DEFAULT: Any = None


@final
@dataclass(frozen=True)
class Aggregator(Immutable):
    """A fold with its way in and its way out, written for one cell.

        run(x_1, ..., x_n) = present(e + lift(x_1) + ... + lift(x_n))

    Args:
      lift: (cells of one element, one an input) -> state.
      monoid: merges states.
      present: state -> result; a dictionary by name where there are several.
      lift_many: (inputs with a leading axis of `n` elements) -> the state of all of them, the identity for `n = 0`. By
        default every element is lifted and a balanced tree merges the states.
      reference: the same as `run`, on NumPy arrays and in NumPy's or SciPy's terms; what tests compare with.
      name: what error messages and tables call it.

    Raises:
      GraphError: when a part cannot be called, or `monoid` is no Monoid.

    Laws: step, chunks, masking, pairing, contramap, present, semantic (with `reference`).
    """

    lift: Callable[..., Any]
    monoid: Monoid
    present: Callable[[Any], Any]
    lift_many: Callable[..., Any] = _DEFAULT
    reference: Callable[..., Any] | None = None
    name: str | None = None

    def __repr__(self) -> str:
        return f"Aggregator({self.name or getattr(self.lift, '__name__', type(self.lift).__name__)})"

    def __post_init__(self) -> None:
        parts: dict[str, Any] = {"lift": self.lift, "present": self.present}
        optional: dict[str, Any] = {"lift_many": self.lift_many, "reference": self.reference}
        parts |= {name: part for name, part in optional.items() if part is not None}
        problems = [f"{name} is {part!r}, expected a function" for name, part in parts.items() if not callable(part)]
        if not isinstance(cast("Any", self.monoid), Monoid):
            problems.append(f"monoid is {self.monoid!r}, expected a Monoid")
        name = cast("Any", self.name)
        if name is not None and not isinstance(name, str):
            problems.append(f"name is {spelt(name)}, expected a string, or None")
        if problems:
            raise GraphError(message("Aggregator: cannot be built.", *problems, remedy="Pass what is expected."))
        for part in parts:
            if (kept := settled(parts[part])) is not parts[part]:
                object.__setattr__(self, part, kept)
        known = optional["lift_many"]
        # `dataclasses.replace` passes on what followed from the old `lift`.
        if known is None or (isinstance(known, LiftEach) and (known.lift, known.monoid) != (self.lift, self.monoid)):
            object.__setattr__(self, "lift_many", LiftEach(self.lift, self.monoid))

    def run(self, *xs: Any) -> Any:
        """Aggregate all elements.

        Args:
          xs: the inputs, each with a leading axis of `n` elements.

        Returns:
          The presented result.

        Raises:
          GraphError: when the inputs are too few or too many, differ in their leading axes, or cannot be lifted; when
            `present` fails.
        """
        where = f"{self.name or 'Aggregator'}.run"
        check_inputs(where, self.lift, self.lift_many, xs)
        try:
            state = self.lift_many(*xs)
        except (TypeError, ValueError) as error:
            leaves = jax.tree.leaves(xs)
            check_together([f"input {number}" for number in range(len(leaves))], leaves, where)
            check_cells(where, self.lift, xs, error)
            raise
        return presented(where, self.present, state)

    def identity(self, *types: Any) -> Any:
        """Make the state of no element.

        Args:
          types: type of one element of every input, as `jax.ShapeDtypeStruct`.

        Returns:
          The identity, with the shapes and dtypes of a lifted element.
        """
        # As JAX takes them: it warns of 64 bits where these are off (0.12).
        taken = jax.tree.map(lambda t: jax.ShapeDtypeStruct(t.shape, jax.dtypes.canonicalize_dtype(t.dtype)), types)
        return self.monoid.identity_for(jax.eval_shape(self.lift, *taken))

    def __and__(self, other: Aggregator) -> Aggregator:
        """Run two aggregators over the same inputs, in one pass; the result is a pair.

        Where one needs fewer inputs than the other, it is given the first ones: `Moments() & TopK(5)` takes values and
        coordinates, of which `Moments` sees the values.
        """
        if not isinstance(cast("Any", other), Aggregator):
            got = f"got {type(other).__name__}: {spelt(other)}"
            remedy = "Pass one of tp.aggregators, or a tp.Aggregator."
            raise GraphError(message("`&` runs two aggregators over the same inputs", got, remedy=remedy))
        needed = count_inputs(self.lift), count_inputs(other.lift)
        counts = None if None in needed or needed[0] == needed[1] else cast("tuple[int, ...]", needed)
        reference = Fork((self.reference, other.reference), counts) if self.reference and other.reference else None
        return Aggregator(
            Fork((self.lift, other.lift), counts),
            self.monoid & other.monoid,
            Each((self.present, other.present)),
            lift_many=ForkMany((self.lift_many, other.lift_many), counts),
            reference=reference,
            name=f"{self.name} & {other.name}" if self.name and other.name else None,
        )

    def contramap(self, function: Callable[..., Any]) -> Aggregator:
        """Transform every element before it is lifted.

        Args:
          function: (cells of one element) -> the cell to lift, or a tuple of cells where `lift` takes several.

        Returns:
          An aggregator of what `function` takes.
        """
        read_function(function, "what contramap takes")
        return Aggregator(
            After(self.lift, function),
            self.monoid,
            self.present,
            lift_many=After(self.lift_many, Mapped(function)),
            reference=After(self.reference, OnHost(Mapped(function))) if self.reference else None,
            name=self.name,
        )

    def by_key(self, labels: Callable[..., Any] | None, size: int) -> Aggregator:
        """Aggregate the elements of every key on their own: a grouped fold by one dense kernel.

            run(xs, labels)[k] = run(those x of xs whose label is k)

        The state has an axis of keys in front, and merges, over a mesh as well, as that of this aggregator does:
        a native or framed monoid becomes segmented reductions, any other a sort and a segmented scan.

        Args:
          labels: (cells of one element) -> its key, an integer; None where keys are a further, last input, one an
            element: `fold(Moments().by_key(None, 10), "row col, row -> col")`.
          size: number of keys; elements with a key outside of `[0, size)` are left out.

        Returns:
          An aggregator whose results have a leading axis of `size`; a key without elements has the result of nothing.

        Raises:
          GraphError: when `labels` is an array, or `size` is no positive integer.

        Laws: those of this aggregator; the reference runs this one's on every key.

        Example:
          >>> import jax.numpy as jnp
          >>> from combinators import aggregators
          >>> both = (aggregators.Sum() & aggregators.Max()).by_key(lambda x: x % 2, 2)
          >>> [leaf.tolist() for leaf in both.run(jnp.array([1, 2, 3, 4]))]
          [[6, 4], [4, 3]]
        """
        return self._by_key("by_key", labels, size, is_sorted=False)

    def by_segment(self, labels: Callable[..., Any] | None, size: int) -> Aggregator:
        """Aggregate every segment on its own: `by_key` of labels that should ascend, so that nothing is sorted.

        The result is that of `by_key` for any labels: whether they ascend is looked at while it runs.

        Args:
          labels: (cells of one element) -> its segment; None where segments are a further, last input.
          size: number of segments; elements with a label outside of `[0, size)` are left out, wherever they stand.

        Returns:
          An aggregator whose results have a leading axis of `size`.

        Raises:
          GraphError: as `by_key`.
        """
        return self._by_key("by_segment", labels, size, is_sorted=True)

    def masked(self, where: Callable[..., Any] | None = None) -> Aggregator:
        """Aggregate only what a mask keeps.

            run(xs, where) = run(those x of xs where it is true)

        What is left out may be anything, NaN as well; it has gradient 0.

        Args:
          where: (cells of one element) -> whether it counts; None where masks are a further, last input, one an
            element: `fold(Mean().masked(), "row col, row -> col")`.

        Returns:
          An aggregator of the same results.

        Raises:
          GraphError: when `where` is an array.

        Laws: masking; those of this aggregator.
        """
        check_selector(where, f"{self.name or 'Aggregator'}.masked", "where", "masked().run(x, where)")
        split, monoid = Split(where), held(self.monoid)
        return Aggregator(
            MaskedLift(self.lift, monoid, split),
            monoid,
            self._present_of(monoid),
            lift_many=MaskedMany(self.lift, monoid, split),
            reference=MaskedReference(self.reference, split) if self.reference else None,
            name=f"masked {self.name}" if self.name else None,
        )

    def segmented(self, starts: Callable[..., Any] | None = None) -> Aggregator:
        """Aggregate the last segment; with `tp.scan` the current one at every step.

        A scan from the end (`reverse=True`) aggregates what is left from a step on, and so the last segment of all,
        as far as it is left. For each segment from its own end, turn the elements before and the results after.

        Args:
          starts: (cells of one element) -> whether a segment begins with it; None where flags are a further, last
            input: `tp.scan(Sum().segmented(), "t, t -> t")(x, starts)`.

        Returns:
          An aggregator whose monoid is `monoids.segmented`; not commutative.

        Raises:
          GraphError: when `starts` is an array.
        """
        check_selector(starts, f"{self.name or 'Aggregator'}.segmented", "starts", "segmented().run(x, starts)")
        return self._last_of("segmented", Flags(Split(starts)), segmented(self.monoid))

    def by_run(self, labels: Callable[..., Any] | None = None) -> Aggregator:
        """Aggregate the last run of equal labels; with `tp.scan` the current one at every step.

        A scan from the end (`reverse=True`) aggregates the last run of all, as far as it is left; see `segmented`.

        Args:
          labels: (cells of one element) -> an integer; None where labels are a further, last input:
            `tp.scan(Sum().by_run(), "t, t -> t")(x, labels)`.

        Returns:
          An aggregator whose monoid is `monoids.runs`; not commutative.

        Raises:
          GraphError: when `labels` is an array.
        """
        check_selector(labels, f"{self.name or 'Aggregator'}.by_run", "labels", "by_run().run(x, labels)")
        return self._last_of("by_run", Labels(Split(labels)), runs(self.monoid))

    def map(self, function: Callable[[Any], Any]) -> Aggregator:
        """Transform the result.

        Args:
          function: presented result -> result.

        Returns:
          An aggregator of the same inputs.
        """
        read_function(function, "what map takes")
        return Aggregator(
            self.lift,
            self.monoid,
            Then(self.present, function),
            lift_many=self.lift_many,
            reference=Then(self.reference, function) if self.reference else None,
            name=self.name,
        )

    def _by_key(self, how: str, labels: Selector, size: int, *, is_sorted: bool) -> Aggregator:
        where = f"{self.name or 'Aggregator'}.{how}"
        check_selector(labels, where, "labels", "by_key(None, size).run(x, labels)")
        split, count, monoid = Split(labels), read_keys(where, size), held(self.monoid)
        return Aggregator(
            KeyedLift(self.lift, monoid, split, count),
            function(monoid),
            EachKey(self._present_of(monoid)),
            lift_many=KeyedMany(self.lift, monoid, split, count, is_sorted),
            reference=KeyedReference(self.reference, split, count) if self.reference else None,
            name=f"{self.name} by key" if self.name else None,
        )

    def _present_of(self, monoid: Monoid) -> Callable[[Any], Any]:
        return self.present if monoid is self.monoid else PresentHeld(self.present, monoid)

    def _last_of(self, how: str, kind: Flags | Labels, monoid: Monoid) -> Aggregator:
        lift = SegmentLift(self.lift, kind)
        return Aggregator(
            lift,
            monoid,
            PresentLast(self.present),
            lift_many=SegmentMany(lift, self.monoid, monoid),
            reference=LastReference(self.reference, kind) if self.reference else None,
            name=f"{how} {self.name}" if self.name else None,
        )
