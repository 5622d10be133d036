"""Running a JAX program without compiling it: its jaxpr, equation by equation, on all devices of a mesh at once.

Compiling a planned program and its gradient takes a second and more; tracing it takes a tenth of that, and running what
was traced in NumPy, on arrays of some dozen cells, about as long. What is run is what XLA would be given: the same
collectives, loops, conditions and derivatives. What XLA makes of it is not seen, so a sample is compiled as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tapestry_jax.shards.numeric.simulated import Numbers, Simulation


def simulated(function: Callable[..., Any], *args: Any) -> Any:
    """What `function(*args)` gives, run in NumPy; it may hold `jax.shard_map` over any mesh.

    Args:
      function: traceable by JAX.
      args: pytrees of arrays.

    Returns:
      NumPy arrays in the structure of the result.

    Raises:
      DivergenceError: where only some devices reach a collective.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
    return run_traced(closed, jax.tree.structure(out), args)


def run_traced(closed: Any, out_tree: Any, args: tuple[Any, ...]) -> Any:
    """What a program that was traced already gives, in the structure `out_tree`."""
    leaves = [[np.asarray(leaf)] for leaf in jax.tree.leaves(args)]
    with np.errstate(all="ignore"):
        results = Simulation(Numbers()).closed(closed, leaves)
    return jax.tree.unflatten(out_tree, [lanes[0] for lanes in results])
