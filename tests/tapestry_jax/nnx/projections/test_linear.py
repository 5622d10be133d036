"""Which axes a linear map takes, and what it says of others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp


def _general(in_features, dims, **options):
    return tp.nnx.LinearGeneral(in_features, 5, dims=dims, rngs=nnx.Rngs(0), **options)


CASES = {
    "leading": (8, ("batch", "embed", "out"), {"batch_axis": {0: 2}}),
    "two leading": (8, (("batch", "seq"), "embed", "out"), {"batch_axis": {0: 2, 1: 6}}),
    "from both ends": ((2, 8), (("batch", "embed"), "out"), {"axis": (-1, 0)}),
    "the last ones": ((6, 8), (("seq", "embed"), "out"), {"axis": (-2, -1)}),
}


@pytest.mark.parametrize("name", CASES)
def test_axes_are_those_of_flax(name):
    sizes, dims, options = CASES[name]
    bias_init = jax.nn.initializers.normal()
    ours = _general(sizes, dims, bias_init=bias_init, **options)
    theirs = nnx.LinearGeneral(sizes, 5, bias_init=bias_init, rngs=nnx.Rngs(0), **options)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    assert ours.kernel.shape == theirs.kernel.shape
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def test_what_stands_between_may_be_anything_and_layers_compose():
    up = tp.nnx.LinearGeneral(8, 4, batch_axis={0: 2}, dims=("group", "embed", "mlp"), rngs=nnx.Rngs(0))
    down = tp.nnx.LinearGeneral(4, 8, batch_axis={0: 2}, dims=("group", "mlp", "embed"), rngs=nnx.Rngs(0))
    graph = tp.trace(up >> down, tp.TensorType({"group": 2, "batch": 3, "seq": 1, "embed": 8}))
    assert graph.type_of(graph.outputs[0][1]).names == ("group", "batch", "seq", "embed")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: _general(8, ("g", "e", "o"), batch_axis={1: 2}), "batch_axis= of LinearGeneral is not what"),
        (lambda: _general(8, ("e", "o"), batch_axis={0: 2}), "dims= of LinearGeneral are not three"),
        (lambda: _general(8, ("g", "e", "o")), "dims= of LinearGeneral are not two"),
        (lambda: _general(8, ("e", "o"), axis=(1, 2)), "axis= of LinearGeneral is not what it should be"),
        (lambda: _general(8, ("e", "o"), axis=3)(jnp.ones((2, 8))), r"with axis=\(3,\) finds no such axes"),
        (
            lambda: _general(2, ("g", "e", "o"), axis=0, batch_axis={0: 2})(jnp.ones((2, 2))),
            "batch_axis= takes its first 1",
        ),
        (
            lambda: _general(8, ("g", "e", "o"), batch_axis={0: 2})(jnp.ones((3, 8))),
            r"takes \(g=2, e=8\), its input has \(g=3, e=8\)(.|\n)*Change the module's batch_axis",
        ),
    ],
)
def test_axes_that_are_not_there_are_refused(made, said):
    with pytest.raises(tp.TapestryError, match=said):
        made()
