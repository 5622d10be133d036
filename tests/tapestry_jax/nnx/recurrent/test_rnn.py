"""Recurrent layers equal Flax's, in value and gradient, from either end, planned and not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X: Any = np.float32(np.random.default_rng(0).standard_normal((4, 5, 3)))
TYPE = tp.TensorType({"batch": 4, "seq": 5, "embed": 3})


def layers(kind: str, library: Any, **options: Any) -> Any:
    return library.RNN(getattr(library, kind)(3, 6, rngs=nnx.Rngs(0)), **options)


def both(call: Any, leaves: Any) -> Any:
    def scored(leaves: Any, x: Any) -> Any:
        y = call(leaves, x)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y

    return jax.jit(jax.value_and_grad(scored, (0, 1), has_aux=True))(leaves, X)


def called(module: Any) -> Any:
    graphdef, state, rest = nnx.split(module, nnx.Param, ...)
    tree = jax.tree.structure(state)
    return lambda leaves, x: nnx.merge(graphdef, jax.tree.unflatten(tree, leaves), rest, copy=True)(x)


def same(ours: Any, theirs: Any, entries: Any) -> None:
    leaves = jax.tree.leaves(nnx.state(theirs, nnx.Param))
    leaves = [np.float32(np.random.default_rng(1).standard_normal(leaf.shape)) * 0.5 for leaf in leaves]
    plan = tp.plan(tp.trace(ours, TYPE), tp.mesh(data=2, model=2), entries).compile()
    tree = jax.tree.structure(nnx.state(ours))
    expected = both(called(theirs), leaves)
    for call in (called(ours), lambda leaves, x: plan(jax.tree.unflatten(tree, leaves), x)):
        for a, b in zip(jax.tree.leaves(both(call, leaves)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options", "entries"),
    [
        ("LSTMCell", {}, {"batch": "data", "cell": "model"}),
        ("GRUCell", {"reverse": True}, {"batch": "data"}),
    ],
)
def test_sequences_are_read_as_by_flax(kind: str, options: Any, entries: Any) -> None:
    same(layers(kind, tp.nnx, **options), layers(kind, nnx, **options), entries)


def test_both_ends_are_read_as_by_flax() -> None:
    ours, theirs = (
        library.Bidirectional(layers("GRUCell", library), layers("GRUCell", library)) for library in (tp.nnx, nnx)
    )
    same(ours, theirs, {"batch": ("data", "model")})


def test_the_same_numbers_start_the_same_weights() -> None:
    pairs = (nnx.to_pure_dict(nnx.state(layers("LSTMCell", library), nnx.Param)) for library in (tp.nnx, nnx))
    jax.tree.map(np.testing.assert_array_equal, *pairs)


def linear() -> Any:
    return tp.nnx.Linear(3, 3, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tp.nnx.RNN(linear()), "cell= of RNN is none"),
        (lambda: tp.nnx.Bidirectional(layers("GRUCell", tp.nnx), linear()), "backward_rnn= of Bidirectional is none"),
        (lambda: layers("LSTMCell", tp.nnx)(X[:, :, :2]), "RNN: the input does not fit"),
    ],
)
def test_what_is_no_recurrent_layer_is_told(call: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        call()


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_narrow_steps_keep_a_wide_state(kind: str) -> None:
    """Steps in bfloat16 add to a state of the dtype of the parameters, as in Flax."""

    def run(library: Any) -> Any:
        return library.RNN(getattr(library, kind)(3, 6, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))(X)

    ours, theirs = run(tp.nnx), run(nnx)
    assert ours.dtype == theirs.dtype == jnp.float32
    np.testing.assert_allclose(ours, theirs, atol=4e-3)


def test_flags_of_its_layers_do_not_turn_both_ends_around() -> None:
    def run(library: Any) -> Any:
        rnns = (library.RNN(library.GRUCell(3, 6, rngs=nnx.Rngs(at)), reverse=True) for at in range(2))
        return library.Bidirectional(*rnns)(X)

    np.testing.assert_allclose(run(tp.nnx), run(nnx), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [4, 5])
def test_leading_axes_without_names_are_read_as_by_flax(length: int) -> None:
    """Two of them: the layers of the cell see no `seq`, and take the second one for it."""
    x = np.float32(np.random.default_rng(0).standard_normal((2, 4, length, 3)))
    ours, theirs = layers("GRUCell", tp.nnx), layers("GRUCell", nnx)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
