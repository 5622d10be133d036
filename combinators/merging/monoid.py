"""Monoids: how partial results merge.

A monoid is an identity and an associative `combine` of two states. It is what makes a fold dimension cuttable: the
pieces are folded where they lie, and their states are combined. What a plan may do beyond that (reorder, merge a piece
twice, take a piece away, use a native collective) it may do only where the monoid declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.kernels.immutable import Immutable
from combinators.kernels.settled import settled
from combinators.merging.frame import Frame, frames_side_by_side
from combinators.merging.leafwise import Native, leafwise, native_of
from combinators.merging.parts import SideBySide, by_part
from combinators.merging.together import reduce_together


@final
@dataclass(frozen=True, repr=False)
class Monoid(Immutable):
    """An identity and an associative way to merge two states, written for one cell.

    A state is a pytree of arrays. With `e` the identity and `+` the `combine`,

        (a + b) + c ~ a + (b + c),    e + a ~ a ~ a + e

    and `a + b` has the tree, the shapes and the dtypes of `a`. Everything else is said by the flags, and a plan uses
    only what they say.

    Args:
      identity: a pytree of numbers, a prefix of the state's tree, broadcast and cast to the cell; or a function of the
        cell's type (a pytree of `jax.ShapeDtypeStruct`) that gives such a pytree or arrays.
      combine: (state, state) -> state, the left one first. `jnp.add` and its like are meant leaf by leaf.
      commutative: `a + b ~ b + a`.
      idempotent: `a + a ~ a`.
      inverse: state -> state with `a + inverse(a) ~ e`; None where there is none.
      frame: how states become plain sums; None where they do not.
      name: what error messages and tables call it.
      parts: of a product, its monoids in order; a lowering may treat each on its own. Made by `product` and `struct`.
      keys: of a `struct`, the names of the parts.

    Raises:
      GraphError: when `combine` or `inverse` cannot be called, `frame` is no Frame, or `identity` holds arrays.

    Laws: associativity, identity, structure; commutativity, idempotence, inverse and frame where declared.
    """

    identity: Any
    combine: Callable[[Any, Any], Any]
    commutative: bool = field(default=False, kw_only=True)
    idempotent: bool = field(default=False, kw_only=True)
    inverse: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    frame: Frame | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    parts: tuple[Monoid, ...] = field(default=(), kw_only=True)
    keys: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        frame, name = cast("Any", self.frame), cast("Any", self.name)
        problems = [
            f"{role} is {value!r}, expected {expected}"
            for role, value, expected, fits in (
                ("combine", self.combine, "a function of two states", callable(self.combine)),
                (
                    "inverse",
                    self.inverse,
                    "a function of a state, or None",
                    self.inverse is None or callable(self.inverse),
                ),
                ("frame", frame, "a Frame, or None", frame is None or isinstance(frame, Frame)),
                ("name", name, "a string, or None", name is None or isinstance(name, str)),
                ("commutative", self.commutative, "True or False", _is_flag(self.commutative)),
                ("idempotent", self.idempotent, "True or False", _is_flag(self.idempotent)),
                ("parts", self.parts, "a tuple of monoids", _are(self.parts, Monoid)),
                ("keys", self.keys, "a tuple of names, or None", self.keys is None or _are(self.keys, str)),
            )
            if not fits
        ]
        if problems:
            raise GraphError(message("Monoid: cannot be built.", *problems, remedy="Pass what is expected."))
        if not callable(self.identity):
            _check_numbers(self.identity)
        for part in ("identity", "combine", "inverse", "frame"):
            given = getattr(self, part)
            if (kept := settled(given)) is not given:
                object.__setattr__(self, part, kept)

    def __hash__(self) -> int:
        identity = self.identity
        if not callable(identity):
            leaves, tree = jax.tree.flatten(identity)
            identity = (tuple(leaves), tree)
        return hash((identity, self.combine, self.commutative, self.idempotent, self.name, self.parts, self.keys))

    def __repr__(self) -> str:
        return f"Monoid({self.name or getattr(self.combine, '__name__', type(self.combine).__name__)})"

    def __and__(self, other: Monoid) -> Monoid:
        """Pair two monoids: the states are pairs and combine side by side."""
        _need_monoid(other)
        return side_by_side((self, other), None)

    @property
    def native(self) -> Native | None:
        """The elementwise collective that does the work of `combine` on every leaf, or None."""
        if self.parts:
            natives: set[Native | None] = {part.native for part in self.parts}
            return natives.pop() if len(natives) == 1 else None
        return native_of(self.combine)

    def merge(self, left: Any, right: Any) -> Any:
        """Combine two states, leaf by leaf where `combine` is a function of arrays.

        Args:
          left: the earlier state.
          right: the later state.

        Returns:
          Their combination.
        """
        # Here, not at the top: a library that is imported need not load it.
        from combinators.merging.careful import careful

        return careful(leafwise(self.combine))(left, right)

    def identity_for(self, cell_type: Any) -> Any:
        """Make the identity of a cell.

        Args:
          cell_type: pytree of `jax.ShapeDtypeStruct`, or of anything with a shape and a dtype.

        Returns:
          A state of exactly these shapes and dtypes.

        Raises:
          GraphError: when the identity's tree, shapes or values do not fit the type.
        """
        types = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), cell_type)
        identity = self.identity(types) if callable(self.identity) else self.identity
        try:
            full = jax.tree.broadcast(identity, types)
        except ValueError as error:
            raise GraphError(
                message(
                    f"{self!r}: the identity does not fit the state.",
                    f"identity  {jax.tree.structure(identity)}",
                    f"state     {jax.tree.structure(types)}",
                    remedy="Give the identity the tree of the state, or one number for all leaves.",
                )
            ) from error
        problems: list[str] = []

        def leaf(path: Any, want: jax.ShapeDtypeStruct, value: Any) -> Any:
            problem = _misfit(value, want)
            if problem is None:
                return jnp.broadcast_to(jnp.asarray(value, want.dtype), want.shape)
            problems.append(f"leaf {jax.tree_util.keystr(path) or 'state'}: {problem}")
            return value

        state = jax.tree_util.tree_map_with_path(leaf, types, full)
        if problems:
            raise GraphError(
                message(
                    f"{self!r}: the identity does not fit the cell.",
                    *problems,
                    remedy="Write the identity as a function of the cell's type.",
                )
            )
        return state

    def fold(self, states: Sequence[Any], cell_type: Any = None) -> Any:
        """Combine states from the left.

        Args:
          states: the states, in order.
          cell_type: type of a state; needed only where there are none.

        Returns:
          Their combination; the identity where there are none.

        Raises:
          GraphError: when there is neither a state nor a type.
        """
        if not states:
            if cell_type is None:
                raise GraphError(
                    message(f"{self!r}.fold: neither a state nor a type.", remedy="Pass `cell_type` for an empty fold.")
                )
            return self.identity_for(cell_type)
        total = states[0]
        for state in states[1:]:
            total = self.merge(total, state)
        return total

    def fold_stacked(self, states: Any) -> Any:
        """Combine states that are stacked along a leading axis, in order, by a balanced tree; extrema by a reduction.

        Args:
          states: pytree of arrays `(n, ...)`.

        Returns:
          Their combination, without the leading axis; the identity where `n` is 0.
        """
        size = jnp.shape(jax.tree.leaves(states)[0])[0]
        if size == 0:
            return self.identity_for(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states))
        if self.parts:
            return by_part(Monoid.fold_stacked, self.parts, self.keys, states)
        if self.native in ("max", "min"):
            # As a mesh folds it: the gradient is shared by all that attain the extremum.
            return jax.tree.map(lambda leaf: reduce_together((self.native,), leaf)[0], states)
        combine = jax.vmap(self.merge)
        while size > 1:
            even = jax.tree.map(lambda x, stop=size - size % 2: x[0:stop:2], states)
            odd = jax.tree.map(lambda x: x[1::2], states)
            rest = jax.tree.map(lambda x, start=size - size % 2: x[start:], states)
            merged = combine(even, odd)
            states = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), merged, rest) if size % 2 else merged
            size = size // 2 + size % 2
        return jax.tree.map(lambda x: x[0], states)


@final
@dataclass(frozen=True)
class IdentityOf:
    """The identity of a monoid as a function of the cell's type."""

    monoid: Monoid

    def __call__(self, cell_type: Any) -> Any:
        """Return the identity's state."""
        return self.monoid.identity_for(cell_type)


def side_by_side(parts: tuple[Monoid, ...], keys: tuple[str, ...] | None) -> Monoid:
    """The product of monoids: it declares what all its parts declare.

    Args:
      parts: one monoid or more.
      keys: their names where states are dictionaries; None where they are tuples.

    Returns:
      The monoid of states that combine side by side.
    """
    inverses = [part.inverse for part in parts if part.inverse is not None]
    names = [repr(part)[len("Monoid(") : -1] for part in parts]
    label = " & ".join(names) if keys is None else ", ".join(f"{k}={n}" for k, n in zip(keys, names, strict=True))
    return Monoid(
        SideBySide(tuple(IdentityOf(part) for part in parts), keys),
        SideBySide(tuple(leafwise(part.combine) for part in parts), keys),
        commutative=all(part.commutative for part in parts),
        idempotent=all(part.idempotent for part in parts),
        inverse=SideBySide(tuple(map(leafwise, inverses)), keys) if len(inverses) == len(parts) else None,
        frame=frames_side_by_side([part.frame for part in parts], keys),
        name=label,
        parts=parts,
        keys=keys,
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in cast("tuple[Any, ...]", values))


def _need_monoid(other: Any) -> None:
    if not isinstance(other, Monoid):
        got = f"got {type(other).__name__}: {spelt(other)}"
        raise GraphError(message("`&` pairs two monoids", got, remedy="Pass one of tp.monoids, or a tp.Monoid."))


def _check_numbers(identity: Any) -> None:
    bad = [
        f"leaf {jax.tree_util.keystr(path) or 'identity'} is {type(leaf).__name__}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(identity)
        if not isinstance(leaf, (bool, int, float, complex, np.generic))
    ]
    if bad:
        raise GraphError(
            message(
                "Monoid: `identity` is neither numbers nor a function.",
                *bad,
                remedy="Write the identity as a function of the cell's type.",
            )
        )


def _misfit(value: Any, want: jax.ShapeDtypeStruct) -> str | None:
    """Say why a value of the identity cannot stand in a leaf, or None where it can."""
    shape = cast("tuple[int, ...]", np.shape(value))
    try:
        fits = np.broadcast_shapes(shape, want.shape) == tuple(want.shape)
    except ValueError:
        fits = False
    if not fits:
        return f"shape {shape} does not broadcast to {tuple(want.shape)}"
    if (
        isinstance(value, (float, np.floating))
        and not np.isfinite(value)
        and not jnp.issubdtype(want.dtype, jnp.inexact)
    ):
        return f"{value} has no place in {want.dtype}"
    return None
