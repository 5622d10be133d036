"""Recurrent layers equal Flax's, in value and gradient, from either end, planned and not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.simulated.sampled import computed, sampled
from tests.thoroughly import but

X: Any = np.float32(np.random.default_rng(0).standard_normal((4, 5, 3)))
TYPE = tp.TensorType({"batch": 4, "seq": 5, "embed": 3})


def layers(kind: str, library: Any, **options: Any) -> Any:
    return library.RNN(getattr(library, kind)(3, 6, rngs=nnx.Rngs(0)), **options)


def both(run: Any, call: Any, leaves: Any) -> Any:
    def scored(leaves: Any, x: Any) -> Any:
        y = call(leaves, x)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y

    return run(jax.value_and_grad(scored, (0, 1), has_aux=True), leaves, X)


def called(module: Any) -> Any:
    graphdef, state, rest = nnx.split(module, nnx.Param, ...)
    tree = jax.tree.structure(state)
    return lambda leaves, x: nnx.merge(graphdef, jax.tree.unflatten(tree, leaves), rest, copy=True)(x)


def same(ours: Any, theirs: Any, entries: Any) -> None:
    leaves = jax.tree.leaves(nnx.state(theirs, nnx.Param))
    leaves = [np.float32(np.random.default_rng(1).standard_normal(leaf.shape)) * 0.5 for leaf in leaves]
    plan = tp.plan(tp.trace(ours, TYPE), tp.mesh(data=2, model=2), entries).compile()
    tree = jax.tree.structure(nnx.state(ours))
    expected = both(computed, called(theirs), leaves)
    planned = both(sampled, lambda leaves, x: plan(jax.tree.unflatten(tree, leaves), x), leaves)
    for found in (both(computed, called(ours), leaves), planned):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options", "entries"),
    [
        ("LSTMCell", {}, {"batch": "data", "cell": "model"}),
        # Backwards by both ends, below.
        pytest.param("GRUCell", {"reverse": True}, {"batch": "data"}, marks=pytest.mark.thorough),
    ],
)
def test_sequences_are_read_as_by_flax(kind: str, options: Any, entries: Any) -> None:
    same(layers(kind, tp.nnx, **options), layers(kind, nnx, **options), entries)


def test_both_ends_are_read_as_by_flax() -> None:
    ours, theirs = (
        library.Bidirectional(layers("GRUCell", library), layers("GRUCell", library)) for library in (tp.nnx, nnx)
    )
    same(ours, theirs, {"batch": ("data", "model")})


@pytest.mark.parametrize(
    ("kind", "dtype", "wide"),
    [
        pytest.param("LSTMCell", "float32", False, marks=pytest.mark.thorough),
        ("LSTMCell", "bfloat16", False),
        pytest.param("LSTMCell", "float32", True, marks=pytest.mark.thorough),
        ("GRUCell", "float64", True),
    ],
)
def test_the_same_numbers_start_the_same_weights(kind: str, dtype: str, wide: bool) -> None:
    """With 64 bits Flax draws the states' kernels of an LSTM in float64, and rounds them."""

    def drawn(library: Any) -> Any:
        cell = getattr(library, kind)(3, 6, param_dtype=dtype, rngs=nnx.Rngs(0))
        return nnx.to_pure_dict(nnx.state(cell, nnx.Param))

    with jax.enable_x64(wide):
        jax.tree.map(np.testing.assert_array_equal, drawn(tp.nnx), drawn(nnx))


def test_gates_of_a_gru_are_slices() -> None:
    """An axis of three gates lies in no tile of a TPU: reshaped they took 1.12 of Flax's cycles."""
    layer = layers("GRUCell", tp.nnx)
    told = str(jax.make_jaxpr(tp.trace(layer, TYPE))(nnx.state(layer), X))
    assert "split" in told and "reshape" not in told


def test_narrow_weights_of_a_gru_are_rounded_orthogonal_ones() -> None:
    narrow, wide = (
        tp.nnx.GRUCell(3, 6, param_dtype=dtype, rngs=nnx.Rngs(0)).dense_h.kernel[...]
        for dtype in ("bfloat16", "float32")
    )
    np.testing.assert_array_equal(narrow, wide.astype("bfloat16"))


def linear() -> Any:
    return tp.nnx.Linear(3, 3, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tp.nnx.RNN(linear()), "cell= of RNN is no cell of tp.nnx"),
        (lambda: tp.nnx.Bidirectional(layers("GRUCell", tp.nnx), linear()), "backward_rnn= of Bidirectional is none"),
        (lambda: layers("LSTMCell", tp.nnx)(X[:, :, :2]), "RNN: the input does not fit"),
    ],
)
def test_what_is_no_recurrent_layer_is_told(call: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        call()


# The cell of LSTM keeps two states.
@pytest.mark.parametrize("kind", but(["LSTMCell", "GRUCell"], "GRUCell"))
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


LENGTHS = np.array([1, 5, 3, 4], np.int32)
FLAGS: dict[str, Any] = {"initial_carry": True, "seq_lengths": True, "return_carry": True}


def states(kind: str) -> Any:
    drawn = [np.float32(np.random.default_rng(at).standard_normal((4, 6))) for at in (1, 2)]
    return tuple(drawn) if kind == "LSTMCell" else drawn[0]


def state_types(kind: str) -> Any:
    names = ("cell", "hidden") if kind == "LSTMCell" else ("hidden",)
    types = tuple(tp.TensorType({"batch": 4, name: 6}) for name in names)
    return types if kind == "LSTMCell" else types[0]


def scored(call: Any) -> Any:
    """States and outputs, and gradients by parameters, steps and first states."""

    def score(leaves: Any, x: Any, carry: Any) -> Any:
        made = call(leaves, x, carry)
        weighted = (jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))) for y in jax.tree.leaves(made))
        return sum(weighted), made

    return jax.value_and_grad(score, (0, 1, 2), has_aux=True)


def agree(ours: Any, theirs: Any, types: Any, carry: Any, entries: Any) -> None:
    leaves = jax.tree.leaves(nnx.state(theirs, nnx.Param))
    graphdef, state, rest = nnx.split(theirs, nnx.Param, ...)
    tree = jax.tree.structure(state)

    def plain(leaves: Any, x: Any, carry: Any) -> Any:
        model = nnx.merge(graphdef, jax.tree.unflatten(tree, leaves), rest, copy=True)
        return model(x, initial_carry=carry, seq_lengths=LENGTHS, return_carry=True)

    lengths = tp.TensorType({"batch": 4}, jnp.int32)
    graph = tp.trace(ours, TYPE, types, lengths)
    plan = tp.plan(graph, tp.mesh(data=2, model=2), entries)
    plan.verify()
    run, tree_of_ours = plan.compile(), jax.tree.structure(nnx.state(ours))
    expected = computed(scored(plain), leaves, X, carry)

    def ours_by(call: Any) -> Any:
        return scored(lambda p, x, c: call(jax.tree.unflatten(tree_of_ours, p), x, c, LENGTHS))

    found = sampled(ours_by(run), leaves, X, carry), computed(ours_by(graph), leaves, X, carry)
    for each in found:
        for a, b in zip(jax.tree.leaves(each), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options", "entries"),
    [
        ("LSTMCell", {}, {"batch": "data", "cell": "model"}),
        pytest.param("GRUCell", {"reverse": True, "keep_order": True}, {"batch": "data"}, marks=pytest.mark.thorough),
    ],
)
def test_first_and_last_states_of_rows_of_several_lengths_are_those_of_flax(
    kind: str, options: Any, entries: Any
) -> None:
    ours = layers(kind, tp.nnx, **options, **FLAGS)
    agree(ours, layers(kind, nnx, **options), state_types(kind), states(kind), entries)


@pytest.mark.thorough
def test_states_of_both_ends_are_those_of_flax() -> None:
    ours = tp.nnx.Bidirectional(*(layers("LSTMCell", tp.nnx) for _ in range(2)), **FLAGS)
    theirs = nnx.Bidirectional(*(layers("LSTMCell", nnx) for _ in range(2)))
    carry = states("LSTMCell"), tuple(2 * state for state in states("LSTMCell"))
    agree(ours, theirs, (state_types("LSTMCell"),) * 2, carry, {"batch": "data", "cell": "model"})


def test_a_sequence_goes_on_where_its_state_was_left() -> None:
    """In one call, or in two; without a step a row keeps its first state, and it goes up to the last one at most."""
    once = layers("GRUCell", tp.nnx, return_carry=True)
    rnn = layers("GRUCell", tp.nnx, initial_carry=True, return_carry=True)
    last, outputs = once(X)
    between, first = once(X[:, :2])
    after, second = rnn(X[:, 2:], between)
    np.testing.assert_allclose(np.concatenate([first, second], 1), outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after, last, rtol=1e-5, atol=1e-6)
    counted = layers("GRUCell", tp.nnx, **FLAGS)
    ends, _ = counted(X[:, 2:], between, np.array([0, 3, 9, 3]))
    np.testing.assert_allclose(ends[0], between[0])
    np.testing.assert_allclose(ends[1:], last[1:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: layers("GRUCell", tp.nnx, initial_carry=True)(X), "RNN takes 2 operands"),
        (lambda: layers("GRUCell", tp.nnx, initial_carry=True)(X, states("LSTMCell")), "the first state does not fit"),
        (lambda: layers("GRUCell", tp.nnx, initial_carry=True)(X, X[:, 0]), "the first state does not fit"),
        (lambda: layers("GRUCell", tp.nnx, initial_carry=True)(X, np.float16(states("G"))), "does not fit"),
        (lambda: layers("GRUCell", tp.nnx, seq_lengths=True, return_carry=True)(X, LENGTHS[:2]), "lengths do not fit"),
        (lambda: layers("GRUCell", tp.nnx, seq_lengths=True, return_carry=True)(X, LENGTHS * 1.0), "do not fit"),
        (lambda: layers("GRUCell", tp.nnx, return_carry=1), "return_carry= of RNN"),
        (
            lambda: tp.nnx.Bidirectional(*[layers("GRUCell", tp.nnx)] * 2, initial_carry=True)(X, states("G")),
            "Bidirectional: the first states do not fit",
        ),
    ],
)
def test_states_and_lengths_that_do_not_fit_are_told(call: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        call()
