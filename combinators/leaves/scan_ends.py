"""The ends of a scan: a state to begin with, and the state that it ends in, both by operations that every plan knows.

A scan that begins with a state is the scan itself, then a map that merges the state in front of every prefix. What it
ends in is its last prefix: of a cut dimension one device has it, and a sum in which all others are zero tells it to the
others. Where no prefix holds everything (exclusive scans, no steps at all) it is a fold of the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from combinators import monoids
from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.merging.blocks import Axes, combine_blocks, map_cells, present_block, shared_axes
from combinators.merging.extrema import attains
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped, shape
from combinators.recording.current import trace_of
from combinators.recording.trace import Trace
from combinators.recording.value import Value
from combinators.stored.json import read_json
from combinators.stored.trees import tree_from_json, tree_to_json

Number = bool | int | float | complex


@dataclass(frozen=True)
class Begin:
    """Merge a first state in front of states (behind them where `reverse`), and present the result.

    Attributes:
      monoid: merges two states.
      structure: the tree of a state, as JSON.
      carrier: the axes of the states' leaves.
      numbers: for each leaf of the first state a number, or None where it is an operand.
      over: the scanned dimension, which the first state lacks; None where the states lack it as well.
      present: state of one cell to result of one cell.
      results: the axes of the result's leaves.
      reverse: whether the scan runs from the end.
    """

    monoid: Monoid
    structure: str
    carrier: tuple[Axes, ...]
    numbers: tuple[Number | None, ...]
    over: str | None
    present: Callable[..., Any] | None
    results: tuple[Axes, ...]
    reverse: bool

    def __call__(self, *blocks: Any) -> Any:
        """The leaves of the result; operands are those of the first state, then the states."""
        tree = tree_from_json(read_json(self.structure, "the structure of a state", any_text=True), "the state")
        states, first = list(blocks[len(blocks) - len(self.carrier) :]), iter(blocks)
        if self.numbers:
            start = [
                jnp.full_like(state, number) if number is not None else self._spread(next(first), axes, state)
                for number, axes, state in zip(self.numbers, self.carrier, states, strict=True)
            ]
            left, right = (states, start) if self.reverse else (start, states)
            states = combine_blocks(self.monoid, tree, self.carrier, left, right)
        return tuple(present_block(self.present, tree, self.carrier, self.results, states))

    def _spread(self, leaf: Any, axes: Axes, like: Any) -> Any:
        if self.over is not None:
            leaf = jnp.expand_dims(leaf, axes.index(self.over))
        return jnp.broadcast_to(leaf, like.shape).astype(like.dtype)


@dataclass(frozen=True)
class Total:
    """The steps of a block merged along one dimension, by a balanced tree.

    Attributes:
      kernel: operand blocks to the block of the steps' states.
      monoid: merges two states.
      structure: the tree of a state, as JSON.
      carrier: the axes of the states' leaves.
      over: the dimension.
    """

    kernel: Callable[..., Any]
    monoid: Monoid
    structure: str
    carrier: tuple[Axes, ...]
    over: str

    def __call__(self, *blocks: Any) -> Any:
        """The state block, without `over`."""
        tree = tree_from_json(read_json(self.structure, "the structure of a state", any_text=True), "the state")
        steps = jax.tree.leaves(self.kernel(*blocks))
        if self.monoid.native in ("max", "min"):
            # As a mesh folds it: the gradient is shared by all that attain the extremum.
            places = [axes.index(self.over) for axes in self.carrier]
            moved = [jnp.moveaxis(leaf, place, 0) for leaf, place in zip(steps, places, strict=True)]
            return jax.tree.unflatten(tree, jax.tree.leaves(self.monoid.fold_stacked(moved)))

        def cell(leaves: list[Any]) -> list[Any]:
            return jax.tree.leaves(self.monoid.fold_stacked(jax.tree.unflatten(tree, leaves)))

        rest = [tuple(name for name in axes if name != self.over) for axes in self.carrier]
        front = [(self.over, *axes) for axes in rest]
        moved = [jnp.moveaxis(leaf, axes.index(self.over), 0) for leaf, axes in zip(steps, self.carrier, strict=True)]
        return jax.tree.unflatten(tree, map_cells(cell, [front], rest, shared_axes(rest))(moved))

    @property
    def merged_by(self) -> tuple[Monoid, ...]:
        """The monoid of the steps."""
        return (self.monoid,)

    def attained(self, places: Sequence[int], state: Sequence[Any], blocks: Sequence[Any]) -> list[Any]:
        """How many steps attain the extrema of a block, int32; `places` says which leaves these are."""
        steps = jax.tree.leaves(self.kernel(*blocks))
        axes = [self.carrier[place].index(self.over) for place in places]
        there = [attains(steps[p], jnp.expand_dims(state[p], axis)) for p, axis in zip(places, axes, strict=True)]
        return [jnp.sum(each, axis=axis, dtype=jnp.int32) for each, axis in zip(there, axes, strict=True)]


@dataclass(frozen=True)
class AtStep:
    """One leaf of the states at one step, as a sum over all steps; for booleans, as `any`.

    Attributes:
      axis: the scanned one.
      step: its coordinate.
      neutral: what changes no sum.
    """

    axis: int
    step: int
    neutral: ClassVar[int] = 0
    merged_by: ClassVar[tuple[Monoid, ...]] = (monoids.Sum, monoids.Any)

    def __call__(self, states: Any, coordinates: Any) -> Any:
        """The leaf without the axis; zeros where the block does not have the step."""
        chosen = jnp.expand_dims(coordinates == self.step, [i for i in range(states.ndim) if i != self.axis])
        kept = jnp.where(chosen, states, jnp.zeros((), states.dtype))
        if states.dtype == bool:
            return jnp.any(kept, axis=self.axis)
        return jnp.sum(kept, axis=self.axis, dtype=states.dtype)


def scan_with_ends(operation: Operation, values: Sequence[Value], init: Any, final: bool) -> Any:
    """Apply a scan that begins with the state `init`, or also gives the state that it ends in.

    Args:
      operation: the scan.
      values: its operands.
      init: None, one number for every leaf, or a pytree like the state, of numbers and of values of the program; these
        have the axes of a state without the scanned dimension.
      final: whether to return the presented last state as well.

    Returns:
      The prefixes; with `final` the pair of the prefixes and the total.

    Raises:
      SignatureError: when `init` does not have the structure of the state.
    """
    recording = trace_of(values, operation.name)
    shaped = shape(operation, tuple(value.struct for value in values))
    ends = _Ends(recording, shaped, list(values), *_first_state(shaped, init))
    if not final:
        return ends.finish(ends.prefixes(), total=False)
    if init is None and (operation.present is None or not ends.ends_in_prefix):
        prefixes = recording.apply(operation, values)
        states = jax.tree.leaves(prefixes)
    else:
        states = ends.prefixes()
        prefixes = ends.finish(states, total=False)
    return prefixes, ends.finish(ends.last(states) if ends.ends_in_prefix else ends.total(), total=True)


@dataclass
class _Ends:
    recording: Trace
    shaped: Shaped
    values: list[Value]
    numbers: tuple[Number | None, ...]
    first: list[Value]

    def __post_init__(self) -> None:
        operation = self.shaped.operation
        assert operation.monoid is not None and operation.over is not None
        self.monoid, self.over = operation.monoid, operation.over
        self.structure = _stored_structure(self.shaped)
        # Axes that a cell has for itself get a name for each leaf, since two leaves may differ in their sizes.
        self.carrier = tuple(
            tuple(name if name in self.shaped.sizes else f"own_{leaf}_{at}" for at, name in enumerate(axes))
            for leaf, axes in enumerate(self.shaped.carrier)
        )
        own = {
            name: size
            for axes, struct in zip(self.carrier, self.shaped.state, strict=True)
            for name, size in zip(axes, struct.shape, strict=True)
            if name not in self.shaped.sizes
        }
        self.sizes = tuple(sorted({**dict(operation.sizes), **own}.items()))

    def operand(self, axes: Axes) -> Operand:
        """The operand of a signature with these axes, whole where they may not be cut."""
        signature = self.shaped.signature
        return Operand(
            tuple(Axis("affine", (Term(a, 1, a not in signature.dims or signature.role(a) == "whole"),)) for a in axes)
        )

    def prefixes(self) -> list[Value]:
        """The states of the scan, not presented."""
        operation = self.shaped.operation
        signature = Signature(self.shaped.signature.operands, tuple(map(self.operand, self.carrier)))
        scan = replace(operation, signature=signature, carrier=self.carrier, present=None, sizes=self.sizes)
        return jax.tree.leaves(self.recording.apply(scan, self.values))

    @property
    def ends_in_prefix(self) -> bool:
        """Whether the last prefix is the state of all steps."""
        return not self.shaped.operation.exclusive and self.shaped.sizes[self.over] > 0

    def last(self, states: Sequence[Value]) -> list[Value]:
        """The state of all steps, as the last of the prefixes."""
        operation = self.shaped.operation
        step = 0 if operation.reverse else self.shaped.sizes[self.over] - 1
        found: list[Value] = []
        for axes, state in zip(self.carrier, states, strict=True):
            (rest,) = self._without_over([axes])
            signature = Signature((self.operand(axes), Operand(coordinate=self.over)), (self.operand(rest),))
            monoid = monoids.Any if state.dtype == bool else monoids.Sum
            kernel = AtStep(axes.index(self.over), step)
            take = Operation(signature, kernel, monoid, (rest,), pad=(0,), name=f"{operation.name}_total")
            found.append(self.recording.apply(take, [state], suggests=False))
        return found

    def total(self) -> list[Value]:
        """The state of all steps, folded anew."""
        operation = self.shaped.operation
        rest = self._without_over(self.carrier)
        signature = Signature(self.shaped.signature.operands, tuple(map(self.operand, rest)))
        kernel = Total(operation.kernel, self.monoid, self.structure, self._of_cells(self.carrier), self.over)
        fold = Operation(signature, kernel, self.monoid, rest, sizes=self.sizes, name=f"{operation.name}_total")
        return jax.tree.leaves(self.recording.apply(fold, self.values))

    def finish(self, states: list[Value], *, total: bool) -> Any:
        """Merge the first state and present."""
        operation = self.shaped.operation
        names = [[axis.name or axis.whole_name or str(axis) for axis in axes] for axes in self.shaped.result_axes]
        results = tuple(
            tuple(f"cell_{at}" if name.startswith("~") else name for at, name in enumerate(axes)) for axes in names
        )
        carried = {name for axes in self.carrier for name in axes}
        given = {
            name: size
            for axes, struct in zip(results, self.shaped.results, strict=True)
            for name, size in zip(axes, struct.shape, strict=True)
            if name not in carried
        }
        carrier, over = self.carrier, self.over
        if total:
            carrier, results, over = self._without_over(carrier), self._without_over(results), None
        cells = self._of_cells(carrier)
        kernel = Begin(
            self.monoid, self.structure, cells, self.numbers, over, operation.present, results, operation.reverse
        )
        rest = self._without_over(self.carrier)
        held = [axes for axes, number in zip(rest, self.numbers, strict=False) if number is None]
        signature = Signature(tuple(map(self.operand, (*held, *carrier))), tuple(map(self.operand, results)))
        sizes = tuple(sorted((name, size) for name, size in given.items() if name in signature.dims))
        merge = Operation(signature, kernel, sizes=sizes, name=f"{operation.name}_{'final' if total else 'begin'}")
        leaves = jax.tree.leaves(self.recording.apply(merge, [*self.first, *states], suggests=False))
        return jax.tree.unflatten(self.shaped.result_tree, leaves)

    def _of_cells(self, carrier: Sequence[Axes]) -> tuple[Axes, ...]:
        """The same for merging: a cell's own axes begin with `~`, which no leaf shares with another."""
        return tuple(tuple(name if name in self.shaped.sizes else f"~{name}" for name in axes) for axes in carrier)

    def _without_over(self, carrier: Sequence[Axes]) -> tuple[Axes, ...]:
        return tuple(tuple(name for name in axes if name != self.over) for axes in carrier)


def _stored_structure(shaped: Shaped) -> str:
    stored = tree_to_json(shaped.state_tree)
    if tree_from_json(stored, "the state") != shaped.state_tree:
        raise SignatureError(
            message(
                f"the state of `{shaped.operation.name}` is made of more than dicts, lists and tuples",
                f"got {shaped.state_tree}",
                remedy="Make the kernel return a plain pytree, or leave out `init` and `final`.",
            )
        )
    return json.dumps(stored)


def _first_state(shaped: Shaped, init: Any) -> tuple[tuple[Number | None, ...], list[Value]]:
    """For each leaf of `init` its number, or None for a value; and the values."""
    if init is None:
        return (), []
    leaves, tree = jax.tree.flatten(init)
    if len(leaves) == 1 and isinstance(leaves[0], Number) and tree == jax.tree.structure(0):
        leaves, tree = leaves * len(shaped.state), shaped.state_tree
    if tree != shaped.state_tree or not all(isinstance(leaf, Number | Value) for leaf in leaves):
        raise SignatureError(
            message(
                f"`init` of `{shaped.operation.name}` is no state of its monoid",
                f"expected {shaped.state_tree}, of numbers and values of the program",
                f"got      {tree}, of {', '.join(sorted({type(leaf).__name__ for leaf in leaves})) or 'nothing'}",
                remedy="Pass one number, or a pytree like the state; arrays come in as arguments of the program.",
            )
        )
    return tuple(leaf if isinstance(leaf, Number) else None for leaf in leaves), [
        leaf for leaf in leaves if isinstance(leaf, Value)
    ]
