"""A function that was traced, to be looked at before it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import as_function


@dataclass(frozen=True)
class Traced:
    """A function that was traced; calling it does not trace it again.

    Attributes:
      jaxpr: what it does.
      out_tree: how its results make its result.
    """

    jaxpr: Any
    out_tree: Any

    def __call__(self, *arguments: Any) -> Any:
        """Run it on arguments of the types that it was traced for."""
        results = as_function(self.jaxpr)(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(self.out_tree, results)


def traced(function: Callable[..., Any], *arguments: Any) -> Traced:
    """Trace a function of pytrees of arrays."""
    closed, results = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Traced(closed, jax.tree.structure(results))
