"""Sketches of every entry of a cell: a kernel of one row of elements, mapped over the axes that the elements have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import GraphError, message


def each_entry(kernel: Callable[..., Any], *xs: Any) -> Any:
    """Apply a kernel of `(n,)` arrays to every entry of cells.

    Args:
      kernel: arrays `(n,)` -> array with axes of its own.
      xs: arrays `(n, *cell)`, or `(n,)` where all entries share them.

    Returns:
      An array with the kernel's own axes, then those of the cell.
    """
    cell = jnp.broadcast_shapes(*(jnp.shape(x)[1:] for x in xs))
    if not cell:
        return kernel(*xs)
    # Where the size of the cell is 0 it cannot be left to be inferred.
    flat = [jnp.broadcast_to(spread(x, len(cell)), (len(x), *cell)).reshape(len(x), int(np.prod(cell))) for x in xs]
    out = jax.vmap(kernel, in_axes=1, out_axes=-1)(*flat)
    return out.reshape(*out.shape[:-1], *cell)


def each_entry_on_host(kernel: Callable[..., Any], *xs: Any) -> Any:
    """The same in NumPy, one entry after the other.

    Args:
      kernel: NumPy arrays `(n,)` -> NumPy array.
      xs: NumPy arrays `(n, *cell)` or `(n,)`.

    Returns:
      A NumPy array with the kernel's own axes, then those of the cell.
    """
    cell = np.broadcast_shapes(*(np.shape(x)[1:] for x in xs))
    full = [np.broadcast_to(spread(x, len(cell)), (len(x), *cell)) for x in xs]
    columns = [kernel(*(x[(slice(None), *at)] for x in full)) for at in np.ndindex(*cell)]
    return np.stack(columns, -1).reshape((*np.shape(columns[0]), *cell))


def spread(x: Any, rank: int) -> Any:
    """Give `(n,)` the axes of a cell of a rank; leave what has them."""
    return x.reshape(len(x), *(1,) * rank) if x.ndim == 1 and rank else x


def counting_number(where: str, **given: Any) -> None:
    """Refuse a size that is no positive integer.

    Args:
      where: what is built.
      given: the sizes, by name.

    Raises:
      GraphError: that names all of them that are none.
    """
    bad = [
        f"{name} is {value!r}, expected an integer of 1 or more"
        for name, value in given.items()
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1
    ]
    if bad:
        raise GraphError(message(f"{where}: cannot be built.", *bad, remedy="Pass positive integers."))
