"""Values of a program where arrays would stand: what works, and what the error says to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from combinators.graphs.nodes import Apply

X = tp.TensorType({"b": 8, "c": 4})
ARRAY = np.arange(32, dtype=np.float32).reshape(8, 4)

SAME: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[2:7],
    "slice from the start": lambda x: x[:5],
    "slice to the end": lambda x: x[-3:],
    "empty slice": lambda x: x[5:2],
    "step": lambda x: x[1::3],
    "from the end": lambda x: x[-3:-1],
    "backwards": lambda x: x[::-1],
    "some backwards": lambda x: x[6:1:-2],
    "both axes backwards": lambda x: x[-2::-3, None, ::-1],
    "a column backwards": lambda x: x[::-1, 1],
    "none backwards": lambda x: x[2:5:-1],
    "one backwards": lambda x: x[3:2:-1],
    "position": lambda x: x[3],
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "column": lambda x: x[:, 1],
    "box": lambda x: x[1:3, ::2],
    "new axis": lambda x: x[:, None, 1:],
    "ellipsis": lambda x: x[..., np.int64(2)],
    "no change": lambda x: x[:],
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(1, 0),
    "astype": lambda x: x.astype(jnp.int32),
    "plus": lambda x: +x,
    "round": lambda x: round(x / 3),
    "divmod": lambda x: divmod(x, 3)[1],
    "reflected remainder": lambda x: 100 % (x + 1),
    "reflected quotient": lambda x: 100 // (x + 1),
    "bits": lambda x: (7 & x.astype(jnp.int32)) ^ (1 | x.astype(jnp.int32)),
    "shifts": lambda x: (x.astype(jnp.int32) << 2) >> 1,
    "len": lambda x: x * len(x),
    "size": lambda x: x * x.size,
}


@pytest.mark.parametrize("how", SAME)
def test_it_is_what_arrays_do(how: str) -> None:
    graph = tp.trace(lambda x: SAME[how](x), X)
    np.testing.assert_allclose(graph(ARRAY), SAME[how](jnp.asarray(ARRAY)), rtol=1e-6)


def test_slices_keep_names_and_are_planned() -> None:
    graph = tp.trace(lambda x: (x[2:7], x[1::3, 1], x.T, x[:1:-3, ::-1]), X)
    assert [str(graph.type_of(ref)) for _, ref in graph.outputs] == [
        "float32(b=5, c=4)",
        "float32(b=3)",
        "float32(c=4, b=8)",
        "float32(b=2, c=4)",
    ]
    for entries in ({"b": "d"}, {"b": tp.chunks(2)}, {"c": "d"}):
        plan = tp.plan(graph, tp.mesh(d=4), entries)
        plan.verify()
        for got, expected in zip(plan.compile()(ARRAY), graph(ARRAY), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("turn", "signature"),
    [
        (lambda x: x[::-1], "(-d0+[w0]+7) d1 -> d0 d1"),
        (lambda x: x[6:0:-2], "(-2*d0+[w0]+6) d1 -> d0 d1"),
        (lambda x: x[::-1, ::-1], "(-d0+[w0]+7) (-d1+[w1]+3) -> d0 d1"),
    ],
)
def test_slices_that_run_backwards_can_be_cut(turn: Callable[[Any], Any], signature: str) -> None:
    graph = tp.trace(lambda x: turn(x), X)
    [node] = graph.nodes[1:]
    assert isinstance(node, Apply) and str(node.operation.signature) == signature
    assert graph.type_of(graph.outputs[0][1]).names == ("b", "c")
    for entries in ({"b": "d"}, {"b": tp.chunks(2)}, {"c": "d"}, {"b": ("d", tp.chunks(2))}):
        plan = tp.plan(graph, tp.mesh(d=2), entries)
        plan.verify()
        np.testing.assert_array_equal(plan.compile()(ARRAY), turn(np.asarray(ARRAY)))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sum": (lambda x: x.sum(), r"has no `sum`(.*\n)*.*tp\.fold\(tp\.aggregators\.Sum\(\)"),
    "mean": (lambda x: x.mean(axis=0), r"tp\.aggregators\.Mean"),
    "reshape": (lambda x: x.reshape(4, 8), r"tp\.rearrange"),
    "dot": (lambda x: x.dot(x), r"tp\.einsum"),
    "at": (lambda x: x.at[0].set(1), r"Values do not change"),
    "cumsum": (lambda x: x.cumsum(), r"tp\.scan\(tp\.aggregators\.Sum"),
    "item": (lambda x: x.item(), r"Return it from the program"),
    "real": (lambda x: x.real, r"tp\.Map\(jnp\.real\)"),
    "sharding": (lambda x: x.sharding, r"A program says nothing of devices"),
    "anything": (lambda x: x.whatever, r"has no `whatever`"),
    "step of zero": (lambda x: x[::0], r"whose step is 0"),
    "too many": (lambda x: x[0, 0, 0], r"indexed by 3 axes"),
    "out of bounds": (lambda x: x[8], r"has no cell 8 along axis 0"),
    "mask": (lambda x: x[x > 0], r"is indexed by Value"),
    "array": (lambda x: x[np.array([1, 2])], r"is indexed by ndarray"),
    "text": (lambda x: x["b"], r"is indexed by str"),
    "bool": (lambda x: x[True], r"is indexed by bool"),
    "value in a slice": (lambda x: x[: x[0, 0]], r"Only constants"),
    "assignment": (lambda x: x.__setitem__(0, 1), r"Values do not change"),
    "deletion": (lambda x: x.__delitem__(0), r"Values do not change"),
    "in": (lambda x: 3 in x, r"looks for something"),
    "reversed": (lambda x: reversed(x), r"iterates"),
    "format": (lambda x: f"{x:.3f}", r"formats the numbers"),
    "digits": (lambda x: round(x, 2), r"jnp\.round"),
    "trunc": (lambda x: math.trunc(x), r"asks for the number"),
    "arrow": (lambda x: x >> tp.Map(jnp.sin), r"Call the arrow"),
    "length of a number": (lambda x: len(x[0, 0]), r"It has no axes"),
    "transpose": (lambda x: x.transpose(0, 0), r"cannot be transposed"),
    "dtype": (lambda x: x.astype("nope"), r"dtype that JAX does not have"),
    "primitive": (lambda x: jax.lax.exp(x), r"calls a function of arrays on a value"),
    "custom derivative": (lambda x: jax.nn.relu(x), r"calls a function of arrays on a value"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_the_error_says_what_to_write(how: str) -> None:
    function, text = REFUSED[how]
    with pytest.raises(tp.TapestryError, match=text):
        tp.trace(lambda x: function(x), X)


def test_attributes_may_be_asked_for() -> None:
    found: list[bool] = []
    tp.trace(lambda x: found.append(hasattr(x, "sum")) or x * 1, X)
    assert found == [False]


class Scaled(tp.nnx.Module):
    def __init__(self) -> None:
        self.w = nnx.Param(jnp.arange(4.0), dims=("c",))

    def forward(self, x: Any) -> Any:
        return tp.einsum("b c, c -> b")(x * self.w + self.w, self.w)


def test_a_parameter_may_stand_without_its_brackets() -> None:
    w = jnp.arange(4.0)
    np.testing.assert_allclose(Scaled()(ARRAY), (ARRAY * w + w) @ w, rtol=1e-5)


def test_a_parameter_may_be_an_operand_of_any_arrow_on_arrays() -> None:
    w = nnx.Param(jnp.arange(12.0).reshape(4, 3))
    product = tp.einsum("b c, c o -> b o")
    program = tp.program("b c, c o -> b o")(lambda x, w: product(x, w))
    for arrow in (product, program, lambda x, w: product.bind(w)(x), lambda x, w: program.bind(w)(x)):
        np.testing.assert_array_equal(arrow(jnp.ones((2, 4)), w), jnp.ones((2, 4)) @ w[...])
    for arrow in (tp.Map(jnp.sin), tp.Map(jnp.sin) >> tp.Map(jnp.cos), tp.iterate(tp.Map(jnp.sin), 2)):
        np.testing.assert_array_equal(arrow(w), arrow(w[...]))
    np.testing.assert_array_equal(tp.rearrange("a b -> b a")(w), w[...].T)


class Read(tp.nnx.Module):
    """Parameters where functions of values take them."""

    def __init__(self) -> None:
        self.w = nnx.Param(jnp.arange(12.0).reshape(4, 3), dims=("k", "c"))

    def forward(self, q: Any) -> Any:
        return tp.attention(q, self.w, tp.named("w", self.w), over="k")


def test_functions_of_values_take_parameters_without_brackets() -> None:
    module = Read()
    graph, x = tp.trace(module, tp.TensorType({"q": 2, "c": 3})), jnp.ones((2, 3))
    wanted = jax.nn.softmax(x @ module.w[...].T / math.sqrt(3)) @ module.w[...]
    np.testing.assert_allclose(graph(module, x), wanted, rtol=1e-5)


def test_equal_numbers_of_other_kinds_are_other_programs() -> None:
    def key(number: Any) -> str:
        return tp.trace(lambda x: x * number, X).key

    assert len({key(number) for number in (1, 1.0, True, 1 + 0j, 0, 0.0, -0.0)}) == 7
    assert key(0.0) == key(0.0)


def test_equal_options_of_layers_that_graphs_tell_apart_stay_apart() -> None:
    def key(epsilon: float) -> str:
        return tp.trace(tp.nnx.LayerNorm(4, epsilon=epsilon, rngs=nnx.Rngs(0)), X).key

    def attention(scale: float) -> str:
        q, k = tp.TensorType({"s": 3, "d": 4}), tp.TensorType({"t": 5, "d": 4})
        return tp.trace(lambda q, k: tp.attention(q, k, k, over="t", scale=scale), q, k).key

    for given in (key, attention):
        assert len({given(0.0), given(-0.0), given(0.0)}) == 2
