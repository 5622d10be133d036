"""A value of a program while it is traced: a type, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from combinators.arguments import read_dimension
from combinators.errors import GraphError, message
from combinators.index_space.naming import LEAF, AxisName, AxisVariable, describe, find, unify
from combinators.index_space.tensor_type import TensorType
from combinators.kernels.immutable import Immutable
from combinators.recording.remedies import no_such_attribute

if TYPE_CHECKING:
    from combinators.graphs.nodes import Ref
    from combinators.recording.trace import Trace


_OPERATORS = frozenset(
    {"add", "subtract", "multiply", "divide", "power", "remainder", "floor_divide", "less", "less_equal", "greater"}
    | {"greater_equal", "equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
)


class Value(Immutable):
    """A tensor of a program that is being traced.

    It has a shape and a dtype but no numbers. Arithmetic and comparisons align axes by name; all else is a leaf:
    `tp.Map(jnp.sin)(x)`.
    """

    __slots__ = ("trace", "ref", "axes", "shape", "dtype")
    __array_priority__ = 1000

    def __init__(
        self, trace: Trace, ref: Ref, axes: tuple[AxisName, ...], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.trace, self.ref, self.axes, self.shape, self.dtype = trace, ref, axes, shape, dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """The type without names."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names of the axes; None where an axis has none yet."""
        found = [find(axis) for axis in self.axes]
        return tuple(name if isinstance(name, str) else None for name in found)

    @property
    def type(self) -> TensorType:
        """Names, sizes and dtype."""
        return TensorType.make(self.names, self.shape, self.dtype)

    def settle(self, wanted: Collection[str] | None = None) -> Value:
        """Take the suggested names of axes that have none yet; returns itself.

        A name is not taken that an axis beside it has, in this tensor or in another one: steps of a loop along `seq`
        do not show that their own axis cannot be `seq`.

        Args:
          wanted: of what leaves suggest, take these alone; by default all.
        """
        for axis in self.axes:
            found = find(axis)
            if isinstance(found, AxisVariable) and found.hint is not None and found.hint not in self.names:
                if wanted is None or found.depth < LEAF or found.hint in wanted:
                    if unify(found, found.hint):
                        self.trace.taken.add(found.hint)
        return self

    def axis(self, name: str) -> int:
        """The position of the axis `name`.

        Raises:
          GraphError: when the value has no such axis.
        """
        if name not in self.names:
            raise GraphError(
                message(
                    f"the value has no axis `{name}`",
                    f"got ({self._dims()})",
                    remedy="Name one of its axes, or name them by the program's signature.",
                )
            )
        return self.names.index(name)

    def rename(self, **names: str) -> Value:
        """The same tensor with some axes renamed: `k.rename(seq="keys")`.

        Raises:
          GraphError: when an axis is missing or has no name, or a name would stand twice.
        """
        for old, new in names.items():
            read_dimension(new, f"the new name of `{old}`")
        self.trace.stick(names.values())
        return self.trace.rename(self, {old: str(new) for old, new in names.items()})

    def __repr__(self) -> str:
        return f"Value({self.dtype.name}({self._dims()}))"

    def _dims(self) -> str:
        return ", ".join(f"{describe(a).strip('`')}={s}" for a, s in zip(self.axes, self.shape, strict=True))

    # What arrays have.

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of a dense array of its type."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> Value:
        """The same tensor with its axes in the opposite order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Value:
        """The same tensor with its axes in another order, by default the opposite one.

        Raises:
          GraphError: when `axes` is no order of the axes.
        """
        return self.trace.transpose(self, axes)

    def astype(self, dtype: Any) -> Value:
        """The same numbers in another dtype.

        Raises:
          GraphError: when JAX has no such dtype.
        """
        return self.trace.astype(self, dtype)

    def __len__(self) -> int:
        if not self.shape:
            self._refuse("Python asks for the length of", "It has no axes.")
        return self.shape[0]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what Python and NumPy look for
            raise AttributeError(name)
        raise no_such_attribute(self, name)

    def _binary(self, other: Any, name: str, swapped: bool = False) -> Value:
        other = as_value(other)
        return self.trace.binary(name, other, self) if swapped else self.trace.binary(name, self, other)

    def _unary(self, name: str) -> Value:
        return self.trace.unary(name, self)

    def __add__(self, other: Any) -> Value:
        return self._binary(other, "add")

    def __radd__(self, other: Any) -> Value:
        return self._binary(other, "add", swapped=True)

    def __sub__(self, other: Any) -> Value:
        return self._binary(other, "subtract")

    def __rsub__(self, other: Any) -> Value:
        return self._binary(other, "subtract", swapped=True)

    def __mul__(self, other: Any) -> Value:
        return self._binary(other, "multiply")

    def __rmul__(self, other: Any) -> Value:
        return self._binary(other, "multiply", swapped=True)

    def __truediv__(self, other: Any) -> Value:
        return self._binary(other, "divide")

    def __rtruediv__(self, other: Any) -> Value:
        return self._binary(other, "divide", swapped=True)

    def __pow__(self, other: Any) -> Value:
        return self._binary(other, "power")

    def __rpow__(self, other: Any) -> Value:
        return self._binary(other, "power", swapped=True)

    def __mod__(self, other: Any) -> Value:
        return self._binary(other, "remainder")

    def __floordiv__(self, other: Any) -> Value:
        return self._binary(other, "floor_divide")

    def __and__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_and")

    def __or__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_or")

    def __rmod__(self, other: Any) -> Value:
        return self._binary(other, "remainder", swapped=True)

    def __rfloordiv__(self, other: Any) -> Value:
        return self._binary(other, "floor_divide", swapped=True)

    def __divmod__(self, other: Any) -> tuple[Value, Value]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Value, Value]:
        return other // self, other % self

    def __rand__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_and", swapped=True)

    def __ror__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_or", swapped=True)

    def __xor__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_xor")

    def __rxor__(self, other: Any) -> Value:
        return self._binary(other, "bitwise_xor", swapped=True)

    def __lshift__(self, other: Any) -> Value:
        return self._binary(other, "left_shift")

    def __rlshift__(self, other: Any) -> Value:
        return self._binary(other, "left_shift", swapped=True)

    def __rshift__(self, other: Any) -> Value:
        if callable(other):
            self._refuse("`>>` composes arrows, and its left side is", "Call the arrow: f(x).")
        return self._binary(other, "right_shift")

    def __rrshift__(self, other: Any) -> Value:
        return self._binary(other, "right_shift", swapped=True)

    def __pos__(self) -> Value:
        return self

    def __round__(self, digits: int | None = None) -> Value:
        if digits:
            self._refuse("Python rounds to digits", "Make it a leaf: tp.Map(lambda x: jnp.round(x, 2))(x).")
        return self._unary("round")

    def __neg__(self) -> Value:
        return self._unary("negative")

    def __abs__(self) -> Value:
        return self._unary("absolute")

    def __invert__(self) -> Value:
        return self._unary("invert")

    def __matmul__(self, other: Any) -> NoReturn:
        self._refuse("`@` multiplies", 'Say which dimension is summed: tp.einsum("i k, k n -> i n")(x, w).')

    def __lt__(self, other: Any) -> Value:
        return self._binary(other, "less")

    def __le__(self, other: Any) -> Value:
        return self._binary(other, "less_equal")

    def __gt__(self, other: Any) -> Value:
        return self._binary(other, "greater")

    def __ge__(self, other: Any) -> Value:
        return self._binary(other, "greater_equal")

    def __eq__(self, other: object) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._binary(other, "equal")

    def __ne__(self, other: object) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._binary(other, "not_equal")

    __hash__ = object.__hash__

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise GraphError(message(f"{what} a value of a program that is being traced", f"got {self!r}", remedy=remedy))

    # A property, since jitted functions only ask whether it exists before they refuse with a message of their own.
    @property
    def __jax_array__(self) -> NoReturn:
        remedy = (
            'Make it a leaf: tp.Map(jnp.sin)(x), or with a signature: tp.Map(f, "a [b] -> a [b]")(x), where '
            "f needs all of `b`. A function of plain JAX or Flax is lifted outside of programs: tp.lift(f, *specs)."
        )
        self._refuse("a function of arrays was called on", remedy)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("NumPy was called on", "Make it a leaf of the program: tp.Map(kernel, signature)(x).")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        # `np.float64(2) * x` arrives here, since NumPy asks before Python does.
        if method == "__call__" and not keywords and ufunc.__name__ in _OPERATORS:
            return self.trace.elementwise(getattr(jnp, ufunc.__name__), *inputs, name=ufunc.__name__)
        return self.__array__()

    def __reduce__(self) -> NoReturn:
        self._refuse("pickle stores", "Store the graph: tp.trace(f, *specs).to_json().")

    def __bool__(self) -> NoReturn:
        self._refuse("a Python condition looks at", "Choose between values with tp.Map(jnp.where)(condition, a, b).")

    def __float__(self) -> NoReturn:
        self._refuse(
            "Python asks for the number of", "Return it from the program; it has numbers when the program runs."
        )

    __int__ = __index__ = __complex__ = __float__

    __trunc__ = __floor__ = __ceil__ = __float__

    def __format__(self, form: str) -> str:
        if form:
            self._refuse("Python formats the numbers of", "Show what the program returns; here is only a type.")
        return repr(self)

    def __iter__(self) -> NoReturn:
        self._refuse("Python iterates over", "Use a Map over the dimension, tp.stack or tp.iterate.")

    __reversed__ = __iter__

    def __contains__(self, item: Any) -> NoReturn:
        self._refuse("Python looks for something in", "Fold over a comparison: tp.fold(tp.aggregators.Any(), ...).")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse("Python changes cells of", "Values do not change; choose: tp.Map(jnp.where)(condition, a, b).")

    def __delitem__(self, key: Any) -> NoReturn:
        self._refuse("Python removes cells of", "Values do not change; take a slice of what is to stay.")

    def __getitem__(self, key: Any) -> Value:
        return self.trace.pick(self, key)


def as_value(thing: Any) -> Any:
    """The value that a variable of flax holds, `w` where `w[...]` is meant; anything else as it is."""
    if isinstance(thing, Value | bool | int | float | complex):
        return thing
    read = getattr(type(thing), "get_value", None)
    if not callable(read):
        return thing
    inner = read(thing)
    return inner if isinstance(inner, Value) else thing
