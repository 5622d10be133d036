"""Cells at places that only the device knows, also as XLA compiles them for users: the suite's flags hide its loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapestry_jax.lowering.on_device.taken import take_cells

_PROGRAM = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir
from jax.sharding import PartitionSpec as P

own = dict(mlir._lowerings)  # JAX's names, as they are without `combinators.kernels.named_apart`
from tapestry_jax.lowering.on_device.taken import take_cells
from tests.fused_names import shared_names

mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rng = np.random.default_rng(0)
few, many = rng.normal(size=(3, 3)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
tables = [np.array(t, np.int32)[:, None] for t in ([2, 1, 1, 1, 1, 0, 0, 0], [2, 2, 2, 2, 1, 0, 0, 0])]

def tell(take):
    def on_device(few, many):
        index = lax.axis_index("data")
        found = [take(few, jnp.asarray(table)[index]) for table in tables]
        return jnp.concatenate([*found, lax.dynamic_slice_in_dim(many, index, 1, 0)])

    run = jax.jit(jax.shard_map(on_device, mesh=mesh, in_specs=(P(), P()), out_specs=P("data"), check_vma=False))
    compiled = run.lower(few, many).compile()
    want = np.concatenate([[few[t[i, 0]] for t in tables] + [many[i]] for i in range(8)])
    print(np.array_equal(np.asarray(compiled(few, many)), want), shared_names(compiled.as_text()))

gather = lambda array, places: jnp.take(array, places, axis=0, mode="clip")
tell(lambda array, places: take_cells(array, places, 0))
tell(gather)
mlir._lowerings.update(own)
jax.clear_caches()
tell(gather)
"""


@pytest.fixture(scope="module")
def told() -> list[str]:
    """Whether the cells are right, and the names that are shared: `take_cells`, a gather, a gather by JAX's names."""
    left_out = {"XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[4])
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_cells_beside_a_slice_are_the_ones_asked_for_under_the_default_flags(told: list[str]):
    assert told[0] == "True []"


def test_a_gather_of_one_place_beside_a_slice_under_the_default_flags(told: list[str]):
    # Not apart it is wrong, and the names tell it.
    assert told[1:] == ["True []", "False [('dynamic-slice.12', 'dynamic_slice.12')]"]


@pytest.mark.parametrize("places", [[2], [0, 2], [1, 1, 3], []], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_cells_and_gradients_are_those_of_numpy(places: list[int], axis: int):
    array = np.arange(20.0).reshape((4, 5) if axis == 0 else (5, 4))
    at = np.array(places, np.int32)
    found, back = jax.vjp(lambda each: take_cells(each, jnp.asarray(at), axis), array)
    expected = np.take(array, at, axis)
    np.testing.assert_array_equal(found, expected)
    counts = np.zeros(4)
    np.add.at(counts, at, 1)
    np.testing.assert_array_equal(
        back(np.ones_like(expected))[0], np.broadcast_to(np.expand_dims(counts, 1 - axis), array.shape)
    )


def test_one_place_is_no_gather():
    shown = str(jax.make_jaxpr(lambda x, at: take_cells(x, at, 0))(np.ones((4, 3)), np.ones(1, np.int32)))
    assert "dynamic_slice" in shown and "gather" not in shown
