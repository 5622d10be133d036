"""How local names bind to the names of tensors: handing on, unification, renames."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, GraphError, SignatureError, TensorType
from combinators.graphs.nodes import Apply, Rename
from combinators.index_space.naming import AxisVariable, Resolver, find, may_be_one, suggest, tell_apart, unify

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
SIN = tp.Map(jnp.sin)
X = TensorType({"batch": 2, "embed": 3})


def result(graph: tp.Graph) -> TensorType:
    return graph.type_of(graph.outputs[0][1])


def test_local_names_bind_to_the_names_of_the_tensors() -> None:
    graph = tp.trace(MATMUL, X, TensorType({"embed": 3, "mlp": 4}))
    (node,) = (node for node in graph.nodes if isinstance(node, Apply))
    assert node.bound == {"i": "batch", "k": "embed", "n": "mlp"}
    assert result(graph) == TensorType({"batch": 2, "mlp": 4})


def test_a_window_hands_its_name_to_its_result_dimension() -> None:
    blur = tp.Map(lambda x: x[1:] + x[:-1], "(y+[dy]) -> y", sizes={"dy": 2})
    assert result(tp.trace(lambda x: blur(blur(x)), TensorType({"row": 8}))) == TensorType({"row": 6})


def test_a_composite_axis_hands_nothing_on() -> None:
    split = tp.rearrange("b (h d) -> b h d", h=3)
    assert result(tp.trace(split, TensorType({"batch": 2, "model": 12}))).names == ("batch", "h", "d")


def test_a_composite_result_is_anonymous_until_something_unifies_with_it() -> None:
    merge = tp.rearrange("b h d -> b (h d)")
    kinds = (TensorType({"b": 2, "h": 3, "d": 4}), TensorType({"model": 12, "out": 5}))
    assert result(tp.trace(merge, kinds[0])).names == ("b", "_0")
    graph = tp.trace(lambda x, w: MATMUL(merge(x), w), *kinds)
    assert graph.nodes[2].results[0].names == ("b", "model")


def test_a_whole_result_axis_takes_the_name_of_its_operand() -> None:
    softmax = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
    assert result(tp.trace(softmax, X)) == X


def test_whole_axes_of_one_local_name_may_have_two_names() -> None:
    scores = tp.Map(lambda q, k: q @ k.T, "s [d], t [d] -> s t")
    graph = tp.trace(scores, TensorType({"q": 2, "a": 4}), TensorType({"k": 3, "b": 4}))
    assert result(graph) == TensorType({"q": 2, "k": 3})


def test_anonymous_axes_unify_with_names() -> None:
    graph = tp.trace(MATMUL, TensorType((2, 3)), TensorType({"embed": 3, "mlp": 4}))
    assert graph.inputs[0].results[0].names == ("i", "embed")


def test_a_signature_names_what_is_anonymous() -> None:
    program = tp.program("batch [c] -> batch [c]")(tp.Map(jax.nn.softmax, "... [c] -> ... [c]"))
    assert result(tp.trace(program, jnp.ones((2, 3)))) == TensorType({"batch": 2, "c": 3})


def test_a_signature_leaves_the_names_that_tensors_have() -> None:
    program = tp.program("b e -> b e")(lambda x: SIN(x))
    assert result(tp.trace(program, X)) == X


def test_one_program_serves_tensors_of_several_names() -> None:
    layer = tp.program("b i, i o -> b o")(lambda x, w: MATMUL(x, w))
    types = (X, TensorType({"embed": 3, "mlp": 4}), TensorType({"mlp": 4, "out": 5}))
    graph = tp.trace(lambda x, v, w: layer(layer(x, v), w), *types)
    assert result(graph) == TensorType({"batch": 2, "out": 5})


def test_arithmetic_aligns_by_name_whatever_the_order() -> None:
    kinds = (TensorType({"b": 2, "e": 3}), TensorType({"e": 3, "b": 2}), TensorType({"h": 5}))
    graph = tp.trace(lambda x, y, z: x - y * z, *kinds)
    assert result(graph) == TensorType({"e": 3, "b": 2, "h": 5})
    x, y, z = (np.arange(kind.size, dtype=np.float32).reshape(kind.shape) for kind in kinds)
    np.testing.assert_array_equal(graph(x, y, z), x.T[:, :, None] - y[:, :, None] * z)


def test_renaming_gives_one_tensor_two_names() -> None:
    def scores(x: Any) -> Any:
        return tp.einsum("q e, k e -> q k")(x, x.rename(batch="keys"))

    assert result(tp.trace(scores, X)) == TensorType({"batch": 2, "keys": 2})


def test_renames_commute_with_maps_so_that_equal_projections_are_one() -> None:
    project = tp.einsum("s e, e d -> s d")

    def program(x: Any, w: Any) -> Any:
        return project(x, w), project(x.rename(seq="keys"), w)

    graph = tp.trace(program, TensorType({"seq": 4, "embed": 3}), TensorType({"embed": 3, "head": 2}))
    kinds = [type(node) for node in graph.nodes[2:]]
    assert kinds == [Apply, Rename]
    assert [graph.type_of(ref).names for _, ref in graph.outputs] == [("seq", "head"), ("keys", "head")]


def test_a_rename_to_a_name_of_the_other_operand_stays_where_it_is() -> None:
    def program(x: Any, w: Any) -> Any:
        return MATMUL(x.rename(other="embed"), w)

    graph = tp.trace(program, TensorType({"batch": 2, "other": 3}), TensorType({"embed": 3, "mlp": 4}))
    assert [type(node) for node in graph.nodes[2:]] == [Rename, Apply]
    assert result(graph) == TensorType({"batch": 2, "mlp": 4})


def test_renames_of_two_names_to_one_are_not_hoisted() -> None:
    def program(x: Any, y: Any) -> Any:
        return tp.einsum("i, i -> i")(x.rename(a="c"), y.rename(b="c"))

    assert result(tp.trace(program, TensorType({"a": 3}), TensorType({"b": 3}))) == TensorType({"c": 3})


def test_a_rename_that_makes_room_for_a_local_name_is_not_hoisted() -> None:
    split = tp.rearrange("b (h d) -> b h d", h=2)

    def program(x: Any) -> Any:
        return split(x.rename(h="rows"))

    graph = tp.trace(program, TensorType({"h": 3, "model": 4}))
    assert result(graph) == TensorType({"rows": 3, "h": 2, "d": 2})


def test_paths_stay_unique_where_a_name_looks_numbered() -> None:
    other = tp.Map(jnp.cos, name="sin_1")
    graph = tp.trace(lambda x: SIN(SIN(other(x))), X)
    paths = [node.path for node in graph.nodes]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.trace(MATMUL, TensorType({"a": 2, "b": 3}), TensorType({"c": 3, "d": 4})),
            CompositionError,
            "cannot apply `matmul`: its `k` is `b` on operand 0 and `c` on operand 1\n"
            "  signature i k, k n -> i n\n"
            "  operand 0: (a, b)\n"
            "  operand 1: (c, d)\n"
            '  Rename one: value.rename(c="b").',
        ),
        (
            lambda: tp.trace(MATMUL, TensorType({"a": 2, "b": 3}), TensorType({"b": 3, "a": 2})),
            CompositionError,
            "`matmul` meets `a` as two dimensions, `i` and `n`\n"
            "  signature i k, k n -> i n\n"
            '  Rename one operand first, as in k.rename(a="keys").',
        ),
        (
            lambda: tp.trace(lambda x: x.rename(batch="embed"), X),
            CompositionError,
            "the result of `rename` would carry `embed` twice\n"
            "  axes: `embed`, `embed`\n"
            '  Rename one operand first, as in k.rename(embed="keys").',
        ),
        (
            lambda: tp.trace(lambda x: x.rename(seq="keys"), X),
            GraphError,
            "cannot rename `seq` to `keys`: the value has no axis `seq`\n"
            "  got Value(float32(batch=2, embed=3))\n"
            "  Rename one of the axes it has.",
        ),
        (
            lambda: tp.trace(lambda x: x.rename(seq="keys"), jnp.ones(3)),
            GraphError,
            "cannot rename `seq` to `keys`: the value has no axis `seq`\n"
            "  got Value(float32(an unnamed axis (axis 0 of `x`)=3))\n"
            "  Name the axes first: give the program a signature, or its inputs a tp.TensorType.",
        ),
        (
            lambda: tp.trace(lambda x, y: x + y, TensorType((2,)), TensorType({"b": 3, "e": 2})).observe("z"),
            GraphError,
            "cannot observe 'z'\n  the graph has y\n  Name a value in the program with tp.named(name, value).",
        ),
        (
            lambda: tp.trace(lambda x, y: x + y, TensorType([(None, 2), ("b", 3)]), TensorType({"b": 2, "e": 3})),
            CompositionError,
            "`add` aligns `e` with `b`\n"
            "  operands [Value(float32(an unnamed axis (axis 0 of `x`)=2, b=3)), Value(float32(b=2, e=3))]\n"
            "  Name every axis, so that operands align by name, or rename one.",
        ),
        (
            lambda: tp.program("b e, b e -> b e")(lambda x, y: x + y)(jnp.ones((2, 3)), jnp.ones((2, 4))),
            SignatureError,
            "operand 1 of `lambda` does not fit its signature.\n"
            "  b e, b e -> b e\n"
            "         ^\n"
            "  its shape is (2, 4)\n"
            "  `e` is 4 here, and 3 by operand 0 of shape (2, 3)\n"
            "  Make the two sizes of `e` equal, or use two names.",
        ),
    ],
)
def test_names_that_do_not_meet_are_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text


def shared(hint: str) -> AxisVariable:
    variable = AxisVariable("somewhere")
    suggest(variable, hint, is_shared=True)
    return variable


def test_naming_gives_a_shared_suggestion_to_all_that_stand_apart() -> None:
    first, second, other = shared("up"), shared("up"), AxisVariable("elsewhere")
    resolve = Resolver(set(), [first, second, other], [(first, other), (second, other)])
    assert [resolve(first), resolve(second)] == ["up", "up"]


def test_naming_numbers_shared_suggestions_that_stand_side_by_side() -> None:
    first, second, third = shared("up"), shared("up"), shared("up")
    resolve = Resolver(set(), [first, second, third], [(first, second), (third,)])
    assert [resolve(first), resolve(second), resolve(third)] == ["up", "up_1", "up"]


def test_naming_shares_nothing_with_names_that_somebody_gave() -> None:
    plain, variable = AxisVariable("elsewhere"), shared("up")
    suggest(plain, "up", 0)
    assert Resolver({"up"}, [variable], [(variable,)])(variable) == "up_1"
    resolve = Resolver(set(), [plain, variable], [(variable,)])
    assert [resolve(plain), resolve(variable)] == ["up", "up_1"]


def test_naming_keeps_axes_that_were_told_apart_two_whatever_they_become() -> None:
    left, right, other = AxisVariable("here"), AxisVariable("there"), AxisVariable("elsewhere")
    tell_apart((left, right))
    assert unify(other, left) and not may_be_one(other, right) and not unify(right, other)
    assert unify(left, "embed") and not unify(right, "embed") and not unify("embed", right)
    assert find(right) is right and unify(right, "mlp")
