"""What a mask hides: the values and derivatives of `jnp.where`, and nothing of its size beside a loop."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from combinators.kernels.jaxprs import programs_inside
from combinators.numerics.hiding import hide
from tapestry_jax.lowering.pinned import trace_pinned

ROWS, KEYS = 3, 5
VALUES = jnp.arange(2.0 * ROWS * KEYS).reshape(2, ROWS, KEYS) - 7
SEEN = jnp.asarray(np.random.default_rng(0).random((1, ROWS, KEYS)) < 0.5)
BESIDE = jnp.asarray([[[jnp.nan], [jnp.inf], [2.5]]])


def hidden(values: Any, seen: Any = SEEN) -> Any:
    return hide(values, seen, -jnp.inf, BESIDE)


def chosen(values: Any, seen: Any = SEEN) -> Any:
    return jnp.where(seen, values, -jnp.inf)


@pytest.mark.parametrize("value", [-jnp.inf, 0.0, -1e30])
def test_values_are_those_of_where(value: float) -> None:
    found = hide(VALUES, SEEN, value, BESIDE)
    np.testing.assert_array_equal(found, jnp.where(SEEN, VALUES, value))


def test_integers_and_half_floats_beside_it_change_nothing() -> None:
    for beside in (jnp.full((1, 1, 1), 7, jnp.int32), jnp.full((2, 3, 5), jnp.nan, jnp.bfloat16)):
        np.testing.assert_array_equal(hide(VALUES, SEEN, 0.0, beside), jnp.where(SEEN, VALUES, 0))


def test_derivatives_are_those_of_where() -> None:
    def loss(hides: Any, values: Any) -> Any:
        return jnp.sum(jax.nn.softmax(hides(values)) ** 3)

    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        ours, plain = (derivative(lambda x, h=h: loss(h, x))(VALUES) for h in (hidden, chosen))
        np.testing.assert_array_equal(jnp.isnan(ours), jnp.isnan(plain))
        np.testing.assert_allclose(ours, plain, rtol=1e-6, atol=1e-7)


def test_what_is_hidden_takes_no_part_in_derivatives() -> None:
    wild = jnp.where(SEEN, 1.0, jnp.nan) * jnp.ones_like(VALUES)
    pulled = jax.vjp(hidden, VALUES)[1](wild)[0]
    np.testing.assert_array_equal(pulled, jnp.broadcast_to(jnp.where(SEEN, 1.0, 0.0), VALUES.shape))
    np.testing.assert_array_equal(jax.jvp(hidden, (VALUES,), (wild,))[1], pulled)


def test_maps_over_all_that_it_takes() -> None:
    seen = jnp.stack([SEEN[0], ~SEEN[0]])
    found = jax.vmap(lambda values, seen: hide(values, seen, 0.0, BESIDE[0]))(VALUES, seen)
    np.testing.assert_array_equal(found, jnp.where(seen, VALUES, 0))


@pytest.mark.parametrize("dropped", [0.0, 0.5], ids=["whole", "dropped"])
@pytest.mark.parametrize("remat", [{}, {"": True}, {"": "dots"}], ids=["kept", "again", "dots"])
def test_nothing_of_all_scores_lies_beside_a_loop(remat: Any, dropped: float) -> None:
    # Causal layers: what JAX moves out of their loop is the mask of one head, not that of all scores.
    batch, seq, heads = 4, 16, 2

    def layer(rngs: nnx.Rngs) -> Any:
        return tp.nnx.MultiHeadAttention(heads, 8, causal=True, dropout_rate=dropped, rngs=rngs)

    model = nnx.eval_shape(lambda: tp.nnx.Stack.of(layer, 3, rngs=nnx.Rngs(params=0, dropout=1)))
    x = jax.ShapeDtypeStruct((batch, seq, 8), jnp.float32)
    graph = tp.trace(lambda model, x: tp.fold(tp.aggregators.Mean(), "b s e -> ()")(model(x)), model, x)
    plan = tp.plan(graph, tp.mesh(jax.devices()[:2], data=2), {"batch": "data"}, remat=remat)
    still = [*_still(trace_pinned(plan.schedule, plan.mesh, (0,)).jaxpr.jaxpr)]
    assert max((math.prod(aval.shape) for aval in still), default=0) <= seq * seq


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    "where", [{"keys": tp.chunks(4)}, {"seq": "data", "keys": tp.ring("data")}], ids=["chunks", "ring"]
)
def test_scores_are_pulled_back_once(dtype: Any, where: Any) -> None:
    # A kernel whose slope may be infinite is pulled back from each leaf of its state apart: three times as much.
    model = nnx.eval_shape(lambda: tp.nnx.MultiHeadAttention(2, 8, causal=True, param_dtype=dtype, rngs=nnx.Rngs(0)))
    x = jax.ShapeDtypeStruct((4, 32, 8), dtype)
    graph = tp.trace(lambda model, x: tp.fold(tp.aggregators.Mean(), "b s e -> ()")(model(x)), model, x)
    plan = tp.plan(graph, tp.mesh(jax.devices()[:2], data=2), where)
    program = trace_pinned(plan.schedule, plan.mesh, (0,)).jaxpr.jaxpr
    scores = {(4, 2, 16, 16), (4, 2, 32, 8)}
    # Recomputed, of the weights, and of what comes back to values: forwards, and once backwards.
    assert sum(out.aval.shape in scores for out in _products(program)) == (6 if "seq" in where else 3)


def _products(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield from equation.outvars
        for inside in programs_inside(equation):
            yield from _products(getattr(inside, "jaxpr", inside))


def _still(jaxpr: Any) -> Iterator[Any]:
    """What loops are given that depends on no argument."""
    free: set[Any] = set()
    for equation in jaxpr.eqns:
        operands = [atom for atom in equation.invars if not isinstance(atom, jax.extend.core.Literal)]
        if free.issuperset(operands):
            free.update(equation.outvars)
        elif equation.primitive.name == "scan":
            yield from (atom.aval for atom in operands if atom in free)
        for inside in programs_inside(equation):
            yield from _still(getattr(inside, "jaxpr", inside))
