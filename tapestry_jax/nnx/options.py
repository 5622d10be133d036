"""What constructors of modules are given: sizes and names that mean something; anything else is told in our words."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from combinators.arguments import read_count, read_dimension, read_list
from combinators.errors import GraphError, message, spelt


def read_sizes(value: Any, what: str) -> tuple[int, ...]:
    """One size or several, each at least 1.

    Raises:
      GraphError: for anything else.
    """
    listed = read_list(value, what) if isinstance(value, tuple | list) else (value,)
    return tuple(read_count(size, what) for size in listed)


def read_dims(value: Any, count: int | None, what: str) -> tuple[str, ...]:
    """Names of dimensions, `count` of them; one alone may stand without a tuple.

    Raises:
      GraphError: for anything else.
    """
    listed = (value,) if isinstance(value, str) else read_list(value, what)
    names = tuple(read_dimension(name, f"a name in {what}") for name in listed)
    if count is not None and len(names) != count:
        remedy = f"Pass {count}, one for each dimension."
        raise GraphError(message(f"{what} are not what they should be", f"got {spelt(names)}", remedy=remedy))
    return names


def read_float_dtype(value: Any, what: str) -> Any:
    """A dtype of real or complex numbers with a fraction, as it was given; None is left to the library.

    Raises:
      GraphError: for anything else.
    """
    if value is None:
        return None
    try:
        dtype = jnp.dtype(value) if isinstance(value, str | type | np.dtype) or hasattr(value, "dtype") else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        details = ("expected a dtype of floats", f"got {type(value).__name__}: {spelt(value)}")
        raise GraphError(message(f"{what} is not what it should be", *details, remedy="Pass one, such as jnp.float32."))
    return value


def read_dtypes(dtype: Any, param_dtype: Any, own: str) -> tuple[Any, Any]:
    """`dtype=` and `param_dtype=`; the second one has to be given.

    Raises:
      GraphError: for what is no dtype of floats.
    """
    param_dtype = False if param_dtype is None else param_dtype
    return read_float_dtype(dtype, f"dtype= {own}"), read_float_dtype(param_dtype, f"param_dtype= {own}")


def read_rngs(value: Any, own: str) -> nnx.Rngs:
    """The random numbers of Flax.

    Raises:
      GraphError: for anything else.
    """
    if isinstance(value, nnx.Rngs):
        return value
    details = ("expected nnx.Rngs", f"got {type(value).__name__}: {spelt(value)}")
    raise GraphError(message(f"rngs= {own} is not what it should be", *details, remedy="Pass rngs=nnx.Rngs(0)."))
