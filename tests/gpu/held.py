"""A plan on a GPU, held to the same program without a plan on the CPU and on the GPU: values, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp

Both = tuple[list[Any], list[Any]]


def assert_planned(
    program: Any,
    args: Sequence[Any],
    mesh: Any,
    entries: Mapping[str, Any],
    *,
    tolerance: float = 2e-5,
    **options: Any,
) -> tp.Plan:
    """Plan, prove and run.

    Args:
      program: a graph, or what `tp.trace` takes.
      args: NumPy arrays, so that they lie nowhere yet.
      mesh: of GPUs.
      entries: of the plan.
      tolerance: of the largest number of each result and gradient; 0 asks for equal ones.
      options: what else `tp.plan` takes.
    """
    graph = program if isinstance(program, tp.Graph) else tp.trace(program, *args)
    plan = tp.plan(graph, mesh, entries, **options)
    plan.verify()
    found = both(plan.compile(), *plan.put(*args))
    assert {device for leaf in jax.tree.leaves(found) for device in leaf.devices()} == {*mesh.devices.flat}
    assert_alike(found, both(graph, *args), tolerance, "beside the CPU")
    here = jax.device_put(tuple(args), mesh.devices.flat[0])
    assert_alike(found, both(graph, *here), tolerance, "beside the same GPU without a plan")
    return plan


def both(run: Callable[..., Any], *args: Any) -> Both:
    """Leaves of the result, and gradients by every floating argument for a cotangent that differs everywhere."""
    leaves, tree = jax.tree.flatten(args)
    smooth = [at for at, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def of(chosen: Sequence[Any]) -> Any:
        filled = list(leaves)
        for at, leaf in zip(smooth, chosen, strict=True):
            filled[at] = leaf
        made = jax.tree.leaves(run(*jax.tree.unflatten(tree, filled)))
        return [leaf for leaf in made if jnp.issubdtype(leaf.dtype, jnp.floating)], made

    def run_both(chosen: Sequence[Any]) -> Both:
        results, pull, made = jax.vjp(of, chosen, has_aux=True)
        return made, pull([_weights(result) for result in results])[0]

    return jax.jit(run_both)([leaves[at] for at in smooth])


def assert_alike(found: Any, expected: Any, tolerance: float, told: str) -> None:
    """Equal to a share of the largest number of each leaf; integers, and all else with a tolerance of 0, exactly.

    What cancels, such as gradients of the biases of keys, is held to a hundredth of the largest number of all leaves.
    """
    wanted = list(map(_wide, jax.tree.leaves(expected)))
    largest = max((_largest(want) for want in wanted), default=0)
    for number, (got, want) in enumerate(zip(jax.tree.leaves(found), wanted, strict=True)):
        where, got = f"{told}: leaf {number}", _wide(got)
        if tolerance == 0 or want.dtype.kind not in "fc":
            np.testing.assert_array_equal(got, want, err_msg=where)
            continue
        scale = max(_largest(want), largest / 100)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale, err_msg=where)


def _wide(leaf: Any) -> Any:
    """An array of NumPy, in doubles where it holds fractions."""
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return np.asarray(leaf, np.complex128)
    return np.asarray(leaf, np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else np.asarray(leaf)


def _largest(leaf: Any) -> float:
    return float(np.max(np.abs(leaf), initial=0, where=np.isfinite(leaf))) if leaf.dtype.kind in "fc" else 0.0


def _weights(result: Any) -> Any:
    # By NumPy: a GPU's cosines differ from a CPU's in their last digits.
    return jnp.asarray(np.cos(np.arange(result.size)).reshape(result.shape), result.dtype)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0, scale: float = 1.0) -> Any:
    """Normal numbers as NumPy has them."""
    numbers = np.random.default_rng((seed, *shape)).normal(size=shape) * scale
    return numbers.astype(jnp.dtype(dtype))
