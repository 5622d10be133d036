"""Aggregators of matrix products in order, over the real numbers and over other semirings."""

from __future__ import annotations

from typing import Any, Literal, cast, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.elementwise import present_state
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid

Semiring = Literal["real", "min_plus", "max_plus", "log"]


def MatrixProduct(semiring: Semiring = "real") -> Aggregator:
    """Multiply square matrices in their order: `fold(MatrixProduct(), "step [i] [j] -> ")`.

    Args:
      semiring: `real`, the product of matrices; `min_plus`, lengths of shortest paths; `max_plus`, scores of best
        paths (Viterbi); `log`, logarithms of sums over all paths (the forward algorithm).

    Returns:
      An aggregator of matrices `(n, n)` to their product; the unit of the semiring for nothing. The product is a
      balanced tree of batched products.

    Raises:
      GraphError: when there is no such semiring, or a matrix is not square.
    """
    known: dict[str, Monoid] = {
        "real": monoids.MatrixProduct,
        "min_plus": monoids.MinPlusProduct,
        "max_plus": monoids.MaxPlusProduct,
        "log": monoids.LogProduct,
    }
    if not isinstance(cast("Any", semiring), str) or semiring not in known:
        raise GraphError(
            message(
                "MatrixProduct: there is no such semiring.",
                f"expected  one of {', '.join(known)}",
                f"got       {semiring!r}",
                remedy="Name one of them, or write a monoid of your own.",
            )
        )
    return Aggregator(
        lift_matrix,
        known[semiring],
        present_state,
        lift_many=MultiplyMany(known[semiring]),
        reference=MultiplyReference(semiring),
        name="MatrixProduct",
    )


def lift_matrix(x: Any) -> Any:
    """Take one matrix as it is."""
    return _square(jnp.asarray(x))


@final
@dataclass(frozen=True)
class MultiplyMany:
    """Multiply along the leading axis by a balanced tree."""

    monoid: Monoid

    def __call__(self, xs: Any) -> Any:
        """Return a matrix."""
        return self.monoid.fold_stacked(_square(jnp.asarray(xs)))


@final
@dataclass(frozen=True)
class MultiplyReference:
    """Multiply from the left in NumPy, in float64."""

    semiring: Semiring

    def __call__(self, xs: Any) -> Any:
        """Return a matrix."""
        xs = np.asarray(xs, np.float64)
        far = {"real": 0.0, "min_plus": np.inf}.get(self.semiring, -np.inf)
        unit = np.where(np.eye(xs.shape[-1]) == 1, 1.0 if self.semiring == "real" else 0.0, far)
        # The unit is the product of nothing, and no factor: beside an infinity its zeros would make NaN.
        total = xs[0] if len(xs) else unit
        for x in xs[1:]:
            with np.errstate(invalid="ignore"):
                if self.semiring == "real":
                    total = total @ x
                    continue
                ways = total[:, :, None] + x[None]
            ways = np.where((total[:, :, None] == far) | (x[None] == far), far, ways)
            merge = {"min_plus": np.minimum, "max_plus": np.maximum, "log": np.logaddexp}[self.semiring]
            total = merge.reduce(ways, axis=1)
        return total


def _square(x: Any) -> Any:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise GraphError(
            message(
                "MatrixProduct: the elements are no square matrices.",
                "expected  (n, n) an element",
                f"got       {x.shape}",
                remedy="Write the axes of a matrix as whole ones: fold(..., 'step [i] [j] -> ').",
            )
        )
    return x
