"""Aggregators: a monoid together with the way in and the way out.

`lift` makes a state of one element, the monoid merges states, `present` turns a state into what the user asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, final

import jax
import numpy as np

from combinators.errors import GraphError, message
from combinators.monoid import Monoid

# Stands for `LiftEach` until construction, so that the field is a function for all who read it.
_DEFAULT: Any = None


@final
@dataclass(frozen=True)
class Aggregator:
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

    def __post_init__(self) -> None:
        parts: dict[str, Any] = {"lift": self.lift, "present": self.present}
        optional: dict[str, Any] = {"lift_many": self.lift_many, "reference": self.reference}
        parts |= {name: part for name, part in optional.items() if part is not None}
        problems = [f"{name} is {part!r}, expected a function" for name, part in parts.items() if not callable(part)]
        if not isinstance(cast("Any", self.monoid), Monoid):
            problems.append(f"monoid is {self.monoid!r}, expected a Monoid")
        if problems:
            raise GraphError(message("Aggregator: cannot be built.", *problems, remedy="Pass what is expected."))
        if optional["lift_many"] is None:
            object.__setattr__(self, "lift_many", LiftEach(self.lift, self.monoid))

    def run(self, *xs: Any) -> Any:
        """Aggregate all elements.

        Args:
          xs: the inputs, each with a leading axis of `n` elements.

        Returns:
          The presented result.
        """
        return self.present(self.lift_many(*xs))

    def identity(self, *types: Any) -> Any:
        """Make the state of no element.

        Args:
          types: type of one element of every input, as `jax.ShapeDtypeStruct`.

        Returns:
          The identity, with the shapes and dtypes of a lifted element.
        """
        return self.monoid.identity_for(jax.eval_shape(self.lift, *types))

    def __and__(self, other: Aggregator) -> Aggregator:
        """Run two aggregators over the same inputs, in one pass; the result is a pair."""
        reference = Fork((self.reference, other.reference)) if self.reference and other.reference else None
        return Aggregator(
            Fork((self.lift, other.lift)),
            self.monoid & other.monoid,
            Each((self.present, other.present)),
            lift_many=Fork((self.lift_many, other.lift_many)),
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
        return Aggregator(
            After(self.lift, function),
            self.monoid,
            self.present,
            lift_many=After(self.lift_many, Mapped(function)),
            reference=After(self.reference, OnHost(Mapped(function))) if self.reference else None,
            name=self.name,
        )

    def map(self, function: Callable[[Any], Any]) -> Aggregator:
        """Transform the result.

        Args:
          function: presented result -> result.

        Returns:
          An aggregator of the same inputs.
        """
        return Aggregator(
            self.lift,
            self.monoid,
            Then(self.present, function),
            lift_many=self.lift_many,
            reference=Then(self.reference, function) if self.reference else None,
            name=self.name,
        )


# The functions below are frozen dataclasses, not closures, so that equal aggregators compare equal and can be stored.


@final
@dataclass(frozen=True)
class LiftEach:
    """Lift every element, then merge the states by a balanced tree."""

    lift: Callable[..., Any]
    monoid: Monoid

    def __call__(self, *xs: Any) -> Any:
        """Lift elements along the leading axis and merge them."""
        return self.monoid.fold_stacked(jax.vmap(self.lift)(*xs))


@final
@dataclass(frozen=True)
class Fork:
    """Apply several functions to the same arguments."""

    functions: tuple[Callable[..., Any], ...]

    def __call__(self, *args: Any) -> Any:
        """Return one result a function."""
        return tuple(function(*args) for function in self.functions)


@final
@dataclass(frozen=True)
class Each:
    """Apply the i-th function to the i-th part of a tuple."""

    functions: tuple[Callable[..., Any], ...]

    def __call__(self, parts: Any) -> Any:
        """Return one result a part."""
        return tuple(function(part) for function, part in zip(self.functions, parts, strict=True))


@final
@dataclass(frozen=True)
class After:
    """Apply `outer` to what `inner` returns: the arguments where it is a tuple, the one argument where it is not."""

    outer: Callable[..., Any]
    inner: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Return `outer(inner(*args))`."""
        middle = self.inner(*args)
        return self.outer(*cast("tuple[Any, ...]", middle)) if isinstance(middle, tuple) else self.outer(middle)


@final
@dataclass(frozen=True)
class Then:
    """Apply `second` to the one result of `first`, whatever its type."""

    first: Callable[..., Any]
    second: Callable[[Any], Any]

    def __call__(self, *args: Any) -> Any:
        """Return `second(first(*args))`."""
        return self.second(self.first(*args))


@final
@dataclass(frozen=True)
class Mapped:
    """Map a function of one element over the leading axis."""

    function: Callable[..., Any]

    def __call__(self, *xs: Any) -> Any:
        """Return the mapped result."""
        return jax.vmap(self.function)(*xs)


@final
@dataclass(frozen=True)
class OnHost:
    """Turn the arrays that a function returns into NumPy's."""

    function: Callable[..., Any]

    def __call__(self, *xs: Any) -> Any:
        """Return NumPy arrays."""
        return jax.tree.map(np.asarray, self.function(*xs))
