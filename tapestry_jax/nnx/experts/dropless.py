"""Every token to the experts that it chose, however many chose them: products of ragged groups of rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from combinators.leaves.reduce import Reduce
from combinators.monoids import Sum
from combinators.numerics.locating import locate
from combinators.recording.value import Value


@dataclass(frozen=True)
class RaggedProduct:
    """Rows times the matrices that they chose, where these lie in a block; zeros elsewhere, so that blocks add up.

    Rows are sorted by matrix, multiplied group by group, and put back.
    """

    def __call__(self, rows: Any, numbers: Any, matrices: Any, at: Any) -> Any:
        """`(..., width)` of rows `(..., features)`, which chose numbers `(...)` of matrices `(n, features, width)`."""
        here = matrices.shape[0]
        place, found = locate(jnp.ravel(numbers), at)
        group = jnp.where(found, place, here)
        order = jnp.argsort(group, stable=True)
        flat = jnp.reshape(rows, (-1, rows.shape[-1]))
        sizes = jnp.sum(jax.nn.one_hot(group, here, dtype=jnp.int32), axis=0)
        made = lax.ragged_dot(flat[order], matrices, sizes)
        # Rows of no group stand behind the last one, and what is there is not defined on all platforms.
        made = jnp.where((jnp.arange(made.shape[0]) < jnp.sum(sizes))[:, None], made, 0)
        back = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype))
        return jnp.reshape(made[back], (*rows.shape[:-1], made.shape[-1]))


def ragged_product(rows: Value, numbers: Value, matrices: Value) -> Value:
    """Each row times the matrix that it chose; `expert` and the contracted dimension are folds, the others maps."""
    kernel = RaggedProduct()
    return Reduce(kernel, "... e, ..., x e m, @x -> ... m", Sum, name="ragged_product")(rows, numbers, matrices)
