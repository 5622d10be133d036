"""Typed random keys come into programs, and are folded and split there as JAX folds and splits them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

KEY = jax.random.key(7)
WEIGHT = tp.TensorType({"embed": 8, "mlp": 6})


def init(key: Any) -> Any:
    first, second = tp.random.split(key)
    return tp.random.normal(first, like=WEIGHT), tp.random.fold_in(second, 3)


def test_a_typed_key_is_an_argument_of_its_words() -> None:
    graph = tp.trace(init, KEY)
    assert str(graph.inputs[0].results[0]) == "uint32(words=2)"
    first, second = jax.random.split(KEY)
    for key in (KEY, jax.random.key_data(KEY)):
        weight, folded = graph(key)
        np.testing.assert_array_equal(weight, tp.random.normal(first, like=WEIGHT))
        np.testing.assert_array_equal(folded, jax.random.key_data(jax.random.fold_in(second, 3)))


def test_a_plan_draws_the_same() -> None:
    graph = tp.trace(init, KEY)
    plan = tp.plan(graph, tp.mesh(data=2), {"mlp": "data"})
    run = plan.compile()
    np.testing.assert_array_equal(run(KEY)[0], graph(KEY)[0])
    np.testing.assert_array_equal(run(*plan.put(KEY))[0], graph(KEY)[0])


def test_every_layer_of_a_stack_has_its_key() -> None:
    def layers(key: Any, x: Any) -> Any:
        keys = tp.random.split(key, 3, over="layer")
        return tp.stack(lambda carry, one: carry + tp.random.normal(one, like=carry), 3)(x, keys)

    x = jnp.zeros(6)
    expected = sum(tp.random.normal(key, like=x) for key in jax.random.split(KEY, 3))
    np.testing.assert_allclose(tp.trace(layers, KEY, tp.TensorType({"n": 6}))(KEY, x), expected, rtol=1e-6)


def test_a_counter_is_folded_in() -> None:
    def draw(key: Any, step: Any) -> Any:
        return tp.random.bits(tp.random.fold_in(key, step), like=tp.TensorType({"n": 4}))

    expected = tp.random.bits(jax.random.fold_in(KEY, 5), like=jnp.zeros(4))
    np.testing.assert_array_equal(tp.trace(draw, KEY, jnp.int32(5))(KEY, jnp.int32(5)), expected)


def test_on_arrays_keys_stay_what_they_are() -> None:
    assert tp.random.fold_in(KEY, 1) == jax.random.fold_in(KEY, 1)
    assert all(jnp.array(tp.random.split(KEY, 3)) == jax.random.split(KEY, 3))
    words = jax.random.key_data(KEY)
    np.testing.assert_array_equal(tp.random.fold_in(words, 1), jax.random.key_data(jax.random.fold_in(KEY, 1)))


@pytest.mark.parametrize("bad", [jax.random.key(0, impl="rbg"), 3, jnp.ones(2), jax.random.split(KEY, 3)], ids=repr)
def test_what_is_no_key_is_told(bad: Any) -> None:
    calls = (
        lambda key: tp.random.normal(key, like=WEIGHT),
        lambda key: tp.random.fold_in(key, 1),
        lambda key: tp.random.split(key),
        lambda key: tp.trace(lambda value: tp.random.normal(value, like=WEIGHT), key),
    )
    for call in calls:
        with pytest.raises(tp.GraphError, match="needs a key of two uint32 words"):
            call(bad)


@pytest.mark.parametrize("num", [0, -1, 2.0, True, "two"])
def test_keys_are_split_into_a_number(num: Any) -> None:
    with pytest.raises(tp.GraphError, match="makes a positive number of keys"):
        tp.random.split(KEY, num)


@pytest.mark.parametrize("data", [1.0, "a", None, np.ones(2, int), np.float32(1)])
def test_an_integer_is_folded_in(data: Any) -> None:
    with pytest.raises(tp.GraphError, match="takes an integer"):
        tp.random.fold_in(KEY, data)


PARAMETERS = tp.TensorType({"n": 8, "m": 3})


def parameters() -> dict[str, Any]:
    """An init without arguments: its key is two numbers of it."""
    first, second = tp.random.split(jax.random.key(7))
    bias = tp.random.fold_in(second, 3)
    drawn = tp.random.normal(first, like=PARAMETERS)
    places = tp.index("n", like=PARAMETERS)
    return {"w": drawn, "b": tp.random.uniform(bias, like=tp.TensorType({"m": 3})), "at": places}


def test_an_init_without_inputs_draws_what_arrays_do() -> None:
    graph = tp.trace(parameters)
    again = tp.Graph.from_json(graph.to_json())
    first, second = tp.random.split(jax.random.key(7))
    expected = {
        "w": tp.random.normal(first, like=PARAMETERS),
        "b": tp.random.uniform(tp.random.fold_in(second, 3), like=tp.TensorType({"m": 3})),
        "at": jnp.arange(8),
    }
    assert tp.index("n", like=PARAMETERS).tolist() == list(range(8))
    for run in (graph, again, tp.plan(graph, tp.mesh(data=2), {"n": "data", "m": tp.chunks(3)}).compile()):
        jax.tree.map(np.testing.assert_array_equal, run(), expected)


def test_a_key_may_stand_in_a_program() -> None:
    x = jnp.ones((8, 3))
    dropped = tp.plan(
        tp.trace(lambda x: x * tp.random.bernoulli(jax.random.key(3), like=x), PARAMETERS),
        tp.mesh(data=2),
        {"n": "data"},
    ).compile()
    np.testing.assert_array_equal(dropped(x), tp.random.bernoulli(jax.random.key(3), like=x).astype(jnp.float32))


def test_a_program_may_have_no_inputs() -> None:
    graph = tp.trace(lambda: tp.Map(lambda at: at * 2.0, "@n -> n", sizes={"n": 8})())
    expected = jnp.arange(8) * 2.0
    np.testing.assert_array_equal(graph(), expected)
    np.testing.assert_array_equal(tp.plan(graph, tp.mesh(data=2), {"n": "data"}).compile()(), expected)
