"""Stored graphs: round trips, and texts that were cut or edited."""

from __future__ import annotations

import collections
import functools
import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import FormatError, Graph, KernelError, TensorType
from combinators.graphs.nodes import Loop
from combinators.stored.trees import tree_from_json, tree_to_json

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
GELU = tp.Map(jax.nn.gelu)
X = TensorType({"b": 4, "e": 3})
W = TensorType({"e": 3, "m": 5})
KEY = TensorType((2,), jnp.uint32)
Pair = collections.namedtuple("Pair", ["second", "first"])


def double(x: Any) -> Any:
    return 2 * x


def layer(x: Any, w: Any) -> Any:
    return x + GELU(MATMUL(x, w)).rename(m="e")


def nested(x: Any, ws: Any) -> Any:
    return tp.iterate(lambda carry, ws: tp.stack(layer, 2)(carry, ws), 3)(x, ws)


def self_attention(x: Any, w: Any) -> Any:
    q = tp.einsum("s e, e h d -> s h d")(x, w)
    k = q.rename(seq="keys")
    return tp.attention(q, k, k, causal=True)


def dropout(x: Any, key: Any) -> Any:
    return x * tp.Map(as_floats)(tp.random.bernoulli(key, 0.9, like=x))


def as_floats(mask: Any) -> Any:
    return mask.astype(jnp.float32)


def present_root(state: Any) -> Any:
    return jnp.sqrt(state)


def sum_rows(x: Any) -> Any:
    return jnp.sum(x, 0)


def window_sum(x: Any) -> Any:
    return x[1:] + x[:-1]


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layer": (layer, (X, TensorType({"e": 3, "m": 3}))),
    "partial": (tp.Map(functools.partial(jax.nn.gelu, approximate=False)), (X,)),
    "ellipsis": (tp.Map(jax.nn.softmax, "... [c] -> ... [c]"), (TensorType((2, 3, 4)),)),
    "scalar": (tp.Map(double, "... -> ..."), (TensorType(()),)),
    "rearrange": (tp.rearrange("b (h d) -> h b d", h=3), (TensorType((2, 12)),)),
    "window": (tp.Map(window_sum, "(y+[dy]-1) -> y", sizes={"dy": 2}, boundary="edge"), (TensorType({"row": 6}),)),
    "own monoid": (
        tp.Reduce(sum_rows, "k n -> n", tp.Monoid(0.0, jnp.add, commutative=True, name="Mine"), present=present_root),
        (X,),
    ),
    "moments": (tp.fold(tp.aggregators.Moments(), "... row -> ..."), (X,)),
    "pair": (tp.fold(tp.aggregators.Sum() & tp.aggregators.Max(), "row col -> col"), (X,)),
    "scan": (tp.Scan(tp.monoids.Sum, "... t -> ... t", over="t", reverse=True, exclusive=True), (X,)),
    "recurrence": (tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d, t d", over="t"), (X, X)),
    "attention": (self_attention, (TensorType({"seq": 4, "e": 3}), TensorType({"e": 3, "h": 2, "d": 4}))),
    "dropout": (dropout, (X, KEY)),
    "index": (lambda x: tp.index("b", like=x), (X,)),
    "loops": (nested, (X, TensorType({"layer": 2, "e": 3, "m": 3}))),
    "choice": (GELU | tp.Map(jnp.tanh), (tp.Either(TensorType((), bool), X, X),)),
    "named": (lambda x: (tp.named("h", GELU(x)) + 1, {"a": [x * 2]}), (X,)),
}


def example(kind: TensorType, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if kind.dtype == np.bool_:
        return np.asarray(rng.random(kind.shape) > 0.5)
    return np.asarray(3 * rng.random(kind.shape) + 1).astype(kind.dtype)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_comes_back_with_its_key_and_computes_the_same(name: str) -> None:
    function, types = PROGRAMS[name]
    graph = tp.trace(function, *types)
    again = Graph.from_json(graph.to_json(), allow=("tests",))
    assert again.key == graph.key
    assert again.to_json() == graph.to_json()
    assert [node.path for node in again.nodes] == [node.path for node in graph.nodes]
    assert [node.results for node in again.nodes] == [node.results for node in graph.nodes]
    assert (again.outputs, again.named, again.name) == (graph.outputs, graph.named, graph.name)
    arrays = [example(node.results[0], seed) for seed, node in enumerate(graph.inputs)]
    ours = graph(*jax.tree.unflatten(graph.in_tree, arrays))
    theirs = again(*jax.tree.unflatten(again.in_tree, arrays))
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(left, right)


def test_equal_operations_are_stored_once() -> None:
    graph = tp.trace(lambda x, *ws: functools.reduce(layer, ws, x), X, *[TensorType({"e": 3, "m": 3})] * 12)
    stored = json.loads(graph.to_json())["graph"]
    assert len(stored["operations"]) == 3
    assert len(stored["nodes"]) == 13 + 12 * 4


def test_public_monoids_are_stored_by_name() -> None:
    stored = json.loads(tp.trace(MATMUL, X, W).to_json())["graph"]
    assert stored["operations"][0]["monoid"] == {"name": "Sum"}


@pytest.mark.parametrize(
    "tree",
    [
        (1, [2, None], {"b": 3, "a": ()}),
        {1: 2, 10: 3, 2: 5},
        {(1, "a"): 3},
        [],
        None,
    ],
)
def test_plain_structures_come_back(tree: Any) -> None:
    structure = jax.tree.structure(tree)
    assert tree_from_json(json.loads(json.dumps(tree_to_json(structure))), "in_tree") == structure


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (tp.Either(1, (2,), 3), {"is_left": 1, "left": (2,), "right": 3}),
        (Pair(1, 2), {"0_second": 1, "1_first": 2}),
        (collections.OrderedDict(z=1, a=2), {"0_z": 1, "1_a": 2}),
    ],
)
def test_other_nodes_become_dicts_by_key_path_in_their_order(tree: Any, expected: Any) -> None:
    stored = tree_from_json(tree_to_json(jax.tree.structure(tree)), "in_tree")
    assert stored == jax.tree.structure(expected)
    assert jax.tree.leaves(expected) == jax.tree.leaves(tree)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_truncated_text_is_refused(share: float) -> None:
    text = tp.trace(layer, X, TensorType({"e": 3, "m": 3})).to_json()
    with pytest.raises(FormatError, match=r"the file is no JSON, from line 1, column \d+ on: truncated\?"):
        Graph.from_json(text[: int(len(text) * share)])


def stored(name: str = "layer") -> dict[str, Any]:
    function, types = PROGRAMS[name]
    return json.loads(tp.trace(function, *types).to_json())


def read(content: dict[str, Any], *, sign: bool = True) -> Graph:
    if sign:  # an edit by somebody who mends the checksum
        text = json.dumps(content["graph"], sort_keys=True, separators=(",", ":"))
        content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return Graph.from_json(json.dumps(content))


def change(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return content


def test_the_tests_own_signature_is_the_right_one() -> None:
    assert read(stored()).key == tp.trace(*[PROGRAMS["layer"][0], *PROGRAMS["layer"][1]]).key


def test_an_edit_that_is_consistent_fails_the_checksum() -> None:
    content = change(stored(), ("graph", "nodes", 0, "path"), "other")
    with pytest.raises(FormatError, match="`graph` was edited: its checksum differs"):
        read(content, sign=False)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("version",), 2, "no graph of this version.\n  expected tapestry-graph 1\n  got 'tapestry-graph' 2"),
        (("format",), "plan", "the file is no graph of this version"),
        (("graph",), [], "graph cannot be read.\n  expected an object of name, operations, nodes"),
        (("graph", "nodes", 2, "operands", 0, 0), 7, "graph, node 2 (matmul): the graph does not hold together.\n"
         "  it refers to node 7, and 2 nodes stand before it"),
        (("graph", "nodes", 2, "operands", 0, 1), 1, "it refers to output 1 of node 0, which has 1"),
        (("graph", "nodes", 2, "operands", 0), [-1, 0], "graph, node 2 (matmul), operands cannot be read"),
        (("graph", "nodes", 2, "operation"), 9, "expected one of the 3 operations\n  got 9"),
        (("graph", "nodes", 2, "types", 0, "dims", 0, 1), 5,
         "graph, node 2 (matmul): the graph does not hold together.\n"
         "  result 0 is float32(b=5, m=3), and should be float32(b=4, m=3)"),
        (("graph", "nodes", 2, "types", 0, "dims", 0, 0), "z", "result 0 is float32(z=4, m=3)"),
        (("graph", "nodes", 2, "types", 0, "dtype"), "int32", "result 0 is int32(b=4, m=3)"),
        (("graph", "nodes", 2, "types", 0, "dtype"), "float33", "graph, node 2 (matmul), type 0, dtype cannot be read"),
        (("graph", "nodes", 2, "names", 0, 1), "z", "graph, node 2 (matmul): the graph does not hold together.\n"
         "  it binds {'i': 'z', 'k': 'e', 'n': 'm'}"),
        (("graph", "nodes", 4, "names", 0, 0), "q", "graph, node 4 (rename): the graph does not hold together.\n"
         "  it renames ['q'], its operand is float32(b=4, m=3)"),
        (("graph", "nodes", 2, "kind"), "input", "graph, node 2 cannot be read"),
        (("graph", "nodes", 2, "kind"), "call", "expected a node of kind input, apply, rename, loop"),
        (("graph", "outputs", 0, 1), 60, "graph, output 'y': the graph does not hold together"),
        (("graph", "in_tree"), {"tuple": ["*"]}, "graph, in_tree: the graph does not hold together.\n"
         "  it holds 1 inputs, the graph has 2"),
        (("graph", "in_tree"), "tree", "graph, in_tree is no structure of arguments"),
        (("graph", "operations", 0, "signature"), "i k ->", "graph, node 2 (matmul): its operation does not fit"),
        (("graph", "operations", 0, "signature"), "i (k", "graph, operation 0: the signature cannot be read"),
        (("graph", "operations", 0, "monoid"), {"name": "Summ"}, "graph, operation 0, monoid is no monoid"),
        (("graph", "operations", 0, "kernel"), {"$function": "os:system"},
         "graph, operation 0, kernel: `os:system` is of the standard library"),
        (("graph", "operations", 0, "kernel"), {"$function": "jax.nn:no_such"},
         "graph, operation 0, kernel: `jax.nn:no_such` is not among what a file may name"),
        (("graph", "operations", 0, "over"), "zz", "graph, operation 0: `over` has a wrong value.\n  got 'zz'"),
        (("graph", "operations", 0, "sizes"), [["k", 3]], "graph, operation 0: `sizes` has a wrong value"),
        (("graph", "operations", 0, "name"), None, "graph, operation 0: `name` has a wrong value"),
    ],
)  # fmt: skip
def test_an_edited_file_names_the_place(path: tuple[Any, ...], value: Any, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(change(stored(), path, value))
    assert text in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("length",), 4, "axis 0 of float32(layer=2, e=3, m=3) does not hold 4 slices along 'layer'"),
        (("axes", 0), 1, "axis 1 of float32(layer=2, e=3, m=3) does not hold 2 slices along 'layer'"),
        (("carries",), 9, "it has fewer operands than it names"),
        (("body", "nodes", 1, "types", 0, "dims", 0, 1), 8, "body, node 2"),
        (("until",), 1, "until cannot be read.\n  expected true or false"),
        (("until",), True, "it ends by a carry, and has slices"),
        (("body", "outputs", 0, 1), 1, "carry 0 of its body is float32(e=3, m=3), and should be float32(b=4, e=3)"),
    ],
)
def test_an_edited_loop_names_the_place(path: tuple[Any, ...], value: Any, text: str) -> None:
    content = json.loads(tp.trace(tp.stack(layer, 2), X, TensorType({"layer": 2, "e": 3, "m": 3})).to_json())
    with pytest.raises(FormatError) as caught:
        read(change(content, ("graph", "nodes", 2, *path), value))
    assert text in str(caught.value) and "graph, node 2 (stack)" in str(caught.value)


def test_two_inputs_of_one_path_are_refused() -> None:
    content = json.loads(tp.trace(tp.Map(jnp.add, "a, a -> a"), TensorType({"a": 3}), TensorType({"a": 3})).to_json())
    with pytest.raises(FormatError, match=r"graph: the graph does not hold together.\n  two inputs have the path x0"):
        read(change(content, ("graph", "nodes", 1, "path"), "x0"))


def test_a_loop_that_ends_by_a_number_is_refused() -> None:
    content = json.loads(tp.trace(tp.iterate(lambda x: x * 2, 3), X).to_json())
    with pytest.raises(FormatError, match=r"it ends by carry 0, which is float32\(b=4, e=3\)"):
        read(change(content, ("graph", "nodes", 1, "until"), True))


def test_a_loop_body_is_a_graph_of_its_own() -> None:
    graph = tp.trace(*[PROGRAMS["loops"][0], *PROGRAMS["loops"][1]])
    again = Graph.from_json(graph.to_json())
    outer, ours = again.nodes[-1], graph.nodes[-1]
    assert isinstance(outer, Loop) and isinstance(ours, Loop)
    assert isinstance(outer.body.nodes[-1], Loop)
    assert outer.body.key == ours.body.key


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(FormatError, match="nested too deeply"):
        Graph.from_json("[" * 100_000)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", '{"format": NaN}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        Graph.from_json(text)


def test_a_lambda_is_not_stored() -> None:
    graph = tp.trace(tp.Map(lambda x: x + 1, "b e -> b e"), X)
    with pytest.raises(KernelError) as caught:
        graph.to_json()
    text = str(caught.value)
    assert text.startswith(
        "`kernel` of the operation `lambda` cannot be stored: a lambda has no name.\n  got <function "
    )
    assert text.endswith("  Define it at the top level of an importable module.")
