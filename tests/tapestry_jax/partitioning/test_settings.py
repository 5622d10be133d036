"""Programs inside of jitted code follow the settings of JAX where they are called."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tapestry_jax as tp
from tapestry_jax.partitioning.settings import Settings

HIGHEST = "operand_precision={highest,highest}"


def test_settings_are_those_of_the_statement_around():
    first = Settings.here()
    with jax.default_matmul_precision("highest"), jax.enable_x64(True), jax.threefry_partitionable(False):
        inner = Settings.here()
    found = dict(inner.values)
    assert (found["enable_x64"], found["default_matmul_precision"], found["threefry_partitionable"]) == (
        True,
        "highest",
        False,
    )
    assert inner != first
    with jax.default_prng_impl("rbg"):  # keys that are made inside draw other numbers
        assert Settings.here() != first
    with inner.entered():
        assert Settings.here() == inner
    assert Settings.here() == first


def test_settings_of_products_hold_on_each_device():
    inside = tp.partitioned(tp.einsum("i k, k n -> i n"))
    mesh = tp.mesh(data=2, model=4)
    x = jax.device_put(jnp.ones((8, 16)), NamedSharding(mesh, P("data", "model")))
    w = jax.device_put(jnp.ones((16, 8)), NamedSharding(mesh, P("model")))

    def text():
        return str(jax.jit(jax.grad(lambda x, w: jnp.sum(jnp.sin(inside(x, w))))).lower(x, w).compile().as_text())

    assert HIGHEST not in text()
    with jax.default_matmul_precision("highest"):
        found = [line for line in text().splitlines() if " dot(" in line]
    assert found
    assert all(HIGHEST in line for line in found)


def test_settings_of_doubles_decide_what_is_traced():
    product = tp.einsum("i k, k n -> i n")
    inside = tp.partitioned(product)
    x, w = np.full((2, 3), 1 / 3), np.ones((3, 2))
    assert inside(x, w).dtype == product(x, w).dtype == np.float32
    with jax.enable_x64(True):
        assert inside(x, w).dtype == product(x, w).dtype == np.float64
        np.testing.assert_array_equal(inside(x, w), x @ w)
    assert inside(x, w).dtype == np.float32


def test_doubles_stay_doubles_on_each_device():
    inside, mesh = tp.partitioned(tp.einsum("i k, k n -> i n")), tp.mesh(data=2, model=4)
    random = np.random.default_rng(0)
    x, w = random.normal(size=(8, 16)), random.normal(size=(16, 8))
    with jax.enable_x64(True):
        placed = [
            jax.device_put(array, NamedSharding(mesh, spec))
            for array, spec in ((x, P("data", "model")), (w, P("model")))
        ]
        value, slope = jax.jit(jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(inside(x, w)))))(*placed)
        assert value.dtype == slope.dtype == np.float64
        # In float32 both would be off by 1e-6.
        np.testing.assert_allclose(value, np.sin(x @ w).sum(), rtol=1e-12)
        np.testing.assert_allclose(slope, np.cos(x @ w) @ w.T, rtol=1e-11, atol=1e-12)
