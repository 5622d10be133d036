"""The monoids of matrix products, over the real numbers and over other semirings. Not commutative."""

from __future__ import annotations

from typing import Any, Literal, final

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.monoids.logsumexp import log_ratio

Semiring = Literal["min_plus", "max_plus", "log"]


def multiply(left: Any, right: Any) -> Any:
    """Multiply two square matrices, the earlier one on the left."""
    return left @ right


def unit_matrix(cell_type: Any) -> Any:
    """Make the matrix that changes nothing."""
    return jnp.eye(cell_type.shape[-1], dtype=cell_type.dtype)


@final
@dataclass(frozen=True)
class PathProduct:
    """Multiply two matrices of path weights: steps in a row add, ways side by side merge.

        c[i, j] = merge over k of a[i, k] + b[k, j]

    An entry that stands for no way stays one, whatever it is added to.
    """

    semiring: Semiring

    def __call__(self, left: Any, right: Any) -> Any:
        """Return the product, of the dtype of the arguments."""
        never = absent(self.semiring)
        first, second = left[:, :, None], right[None, :, :]
        missing = (first == never) | (second == never)
        # Infinities of both signs would give NaN in the branch that is not taken, and NaN in its gradient.
        ways = jnp.where(missing, 0, first) + jnp.where(missing, 0, second)
        ways = jnp.where(missing, never, ways)
        return merge_ways(self.semiring, ways, axis=1).astype(left.dtype)


@final
@dataclass(frozen=True)
class PathUnit:
    """The matrix that changes nothing: to stay costs 0, and there is no way elsewhere."""

    semiring: Semiring

    def __call__(self, cell_type: Any) -> Any:
        """Return a matrix of the cell's type."""
        size = cell_type.shape[-1]
        return jnp.where(jnp.eye(size, dtype=jnp.bool_), 0, absent(self.semiring)).astype(cell_type.dtype)


def absent(semiring: Semiring) -> float:
    """Say what stands for no way: the zero of the semiring."""
    return float("inf") if semiring == "min_plus" else -float("inf")


def merge_ways(semiring: Semiring, ways: Any, axis: int) -> Any:
    """Merge the weights of ways side by side: the least, the greatest, or the logarithm of the sum of exponentials."""
    if semiring == "min_plus":
        return jnp.min(ways, axis=axis, initial=jnp.inf)
    top = jnp.max(ways, axis=axis, initial=-jnp.inf)
    if semiring == "max_plus":
        return top
    total = jnp.sum(jnp.exp(log_ratio(ways, jnp.expand_dims(top, axis))), axis=axis)
    # Beside NaN, which is no reference for exponents, the total is 0 as well, but there is a way.
    none = jnp.where(jnp.isnan(top), jnp.nan, -jnp.inf)
    return jnp.where(total == 0, none, top + jnp.log(jnp.where(total == 0, 1, total)))


def _paths(semiring: Semiring, name: str) -> Monoid:
    return Monoid(PathUnit(semiring), PathProduct(semiring), name=name)


MatrixProduct: Monoid = Monoid(unit_matrix, multiply, name="MatrixProduct")
"""State a square matrix `(n, n)`; `a + b` is `a @ b`, the identity the unit matrix. Without an inverse, since not every
matrix has one. Precision is that of `jnp.matmul`.
"""

MinPlusProduct: Monoid = _paths("min_plus", "MinPlusProduct")
"""State a square matrix of floats; `(a + b)[i, j] = min_k a[i, k] + b[k, j]`, `inf` where there is no way: lengths of
shortest paths. A product takes `n**3` memory where it is not fused. Source: the tropical semiring; Floyd 1962.
"""

MaxPlusProduct: Monoid = _paths("max_plus", "MaxPlusProduct")
"""As `MinPlusProduct` with `max`, `-inf` where there is no way: scores of best paths. Source: Viterbi 1967."""

LogProduct: Monoid = _paths("log", "LogProduct")
"""State a square matrix of logarithms; `(a + b)[i, j] = log sum_k exp(a[i, k] + b[k, j])`: the logarithm of the product
of `exp a` and `exp b`, without overflow. Scanned, it is the forward algorithm. Source: Baum, Petrie 1966.
"""
