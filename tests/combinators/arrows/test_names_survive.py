"""Names survive wherever somebody wrote one: every constructor in every combinator, on arrays without names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import Graph, TensorType
from combinators.graphs.nodes import Apply, Loop

SIN = tp.Map(jnp.sin)


class Case(NamedTuple):
    """An arrow, the shapes of its operands, the names in its signature, and how many axes are compositions."""

    arrow: Any
    shapes: tuple[tuple[int, ...], ...]
    names: str
    nameless: int = 0


def mean(x: Any) -> Any:
    return (x[:-1] + x[1:]) / 2


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attend(q: Any, k: Any, v: Any) -> Any:
    return tp.attention(q, k, v)


@tp.program("words, rows cols -> rows cols")
def noisy(key: Any, x: Any) -> Any:
    return x + tp.random.normal(key, like=x)


CASES = {
    "map": Case(tp.Map(jnp.sin, "a b -> a b"), ((4, 3),), "a b"),
    "map of two": Case(tp.Map(jnp.add, "a b, a b -> a b"), ((4, 3), (4, 3)), "a b"),
    "whole": Case(tp.Map(jax.nn.softmax, "a [c] -> a [c]"), ((4, 3),), "a c"),
    "leading": Case(tp.Map(jax.nn.softmax, "... t [c] -> ... t [c]"), ((4, 3),), "t c"),
    "window axes": Case(tp.Map(mean, "(y+[dy]) -> y", sizes={"dy": 2}, boundary="periodic"), ((4,),), "y"),
    "strided": Case(tp.Map(lambda x: x[::2], "(2*y) -> y"), ((4,),), "y"),
    "reversed": Case(tp.Map(lambda x: x[::-1], "(3-y) -> y"), ((4,),), "y"),
    "coordinates": Case(tp.Map(lambda x, at: x + at, "a, @a -> a"), ((4,),), "a"),
    "reduce": Case(tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum), ((4, 3), (3, 2)), "i k n"),
    "scan": Case(tp.Scan(tp.monoids.Sum, "b t -> b t", over="t"), ((4, 3),), "b t"),
    "scan with ends": Case(tp.Scan(tp.monoids.Sum, "b t -> b t", over="t", init=1, final=True), ((4, 3),), "b t"),
    "fold": Case(tp.fold(tp.aggregators.Moments(), "row col -> col"), ((4, 3),), "row col"),
    "einsum": Case(tp.einsum("b s k, k h d -> b s h d"), ((2, 3, 4), (4, 2, 3)), "b s k h d"),
    "transposition": Case(tp.rearrange("a b -> b a"), ((4, 3),), "a b"),
    "split": Case(tp.rearrange("b (h d) -> b h d", h=2), ((4, 6),), "b h d", 1),
    "composition": Case(tp.rearrange("b h d -> (h d) b"), ((4, 2, 3),), "b h d", 1),
    "window": Case(tp.window(tp.aggregators.Sum(), 2, "t col -> t col", over="t"), ((4, 3),), "t col"),
    "by key": Case(tp.fold(tp.aggregators.Sum().by_key(lambda x: x.astype(int), 3), "row -> "), ((4,),), "row", 1),
    "program": Case(tp.program("p q -> p q")(lambda x: SIN(x)), ((4, 3),), "p q"),
    "attention": Case(attend, ((2, 4, 3), (2, 5, 3), (2, 5, 3)), "heads queries keys d e"),
    "random": Case(noisy, ((2,), (4, 3)), "words rows cols"),
}


def arrays(case: Case) -> list[Any]:
    first = jnp.uint32 if case.arrow is noisy else jnp.float32
    return [jnp.ones(shape, jnp.float32 if number else first) for number, shape in enumerate(case.shapes)]


def nest(arrow: Any) -> Any:
    return tp.program(lambda *values: tp.program(lambda *inner: arrow(*inner))(*values))


WHOLE: dict[str, Callable[[Any], Any]] = {
    "alone": lambda f: f,
    "function": lambda f: lambda *values: f(*values),
    "program": nest,
    "then": lambda f: f >> tp.identity if f.gives() is not None and len(f.gives()) == 1 else f,
    "fan out": lambda f: f & f,
}


def names(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        for kind in node.results:
            yield from (str(name) for name in kind.names)
        if isinstance(node, Apply):
            yield from (name for _, name in node.names)
        if isinstance(node, Loop):
            yield from names(node.body)


def check(graph: Graph, written: str, nameless: int = 0) -> None:
    found = set(names(graph))
    assert set(written.split()) <= found, graph.show()
    lost = {name for name in found if re.fullmatch(r"_\d+", name)}
    assert len(lost) <= nameless, graph.show()


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("case", CASES)
def test_the_names_of_a_signature_are_those_of_the_program(case: str, whole: str) -> None:
    arrow, _, written, nameless = CASES[case]
    check(tp.trace(WHOLE[whole](arrow), *arrays(CASES[case])), written, nameless)


@pytest.mark.parametrize("case", CASES)
def test_names_survive_what_stands_before(case: str) -> None:
    arrow, shapes, written, nameless = CASES[case]
    before = SIN if len(shapes) == 1 else tp.program(lambda *values: (values[0], *values[1:]))
    check(tp.trace(before >> arrow, *arrays(CASES[case])), written, nameless)


@pytest.mark.parametrize("case", CASES)
def test_names_survive_beside_others(case: str) -> None:
    arrow, _, written, nameless = CASES[case]
    given, other = arrays(CASES[case]), jnp.ones((4, 3))
    spin = tp.Map(jnp.sin, "u v -> u v")
    check(tp.trace(arrow * spin, *given, other), written + " u v", nameless)
    check(tp.trace(spin * arrow, other, *given), written + " u v", nameless)
    # What passes through has no name that anybody wrote.
    check(tp.trace(arrow.first(), *given, other), written, nameless + 2)
    check(tp.trace(arrow.second(), other, *given), written, nameless + 2)


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if len(case.shapes) > 1])
def test_names_survive_binding(case: str) -> None:
    arrow, _, written, nameless = CASES[case]
    given = arrays(CASES[case])
    check(tp.trace(arrow.bind(*given[1:]), given[0]), written, nameless)


ENDOMORPHISMS = ["map", "whole", "leading", "window axes", "scan", "reversed", "program", "window", "coordinates"]


@pytest.mark.parametrize("case", ENDOMORPHISMS)
def test_names_survive_loops(case: str) -> None:
    arrow, _, written, nameless = CASES[case]
    (x,) = arrays(CASES[case])
    check(tp.trace(tp.iterate(arrow, 3), x), written, nameless)
    check(tp.trace(tp.iterate(tp.iterate(arrow, 2), 3), x), written, nameless)
    check(tp.trace(tp.iterate(SIN >> arrow, 3), x), written, nameless)
    layers = jnp.ones((2, *x.shape))
    check(tp.trace(tp.stack(lambda carry, layer: arrow(carry + layer), 2), x, layers), written + " layer", nameless)
    ends = tp.program(lambda x, state: (arrow(x), arrow(state + x)))
    check(tp.trace(ends.feedback("t0"), layers, x), written + " t0", nameless)


@pytest.mark.parametrize("case", ["map", "whole", "scan", "program"])
def test_names_survive_choices(case: str) -> None:
    arrow, _, written, _ = CASES[case]
    (x,) = arrays(CASES[case])
    either = tp.Either(jnp.zeros(x.shape, bool), x, x)
    check(tp.trace(arrow | SIN, either), written)
    # Neither the condition nor the other case meets a signature.
    check(tp.trace(arrow.left(), either), written, 4)


# Conflicts


def results(graph: Graph) -> list[tuple[str | None, ...]]:
    return [node.results[0].names for node in graph.nodes]


A_B, C_D = tp.Map(jnp.sin, "a b -> a b"), tp.Map(jnp.cos, "c d -> c d")
MATMUL = tp.einsum("i k, k n -> i n")
X = jnp.ones((3, 3))


def test_the_first_of_two_leaves_names_an_axis() -> None:
    assert results(tp.trace(A_B >> C_D, X)) == [("a", "b")] * 3
    assert results(tp.trace(C_D >> A_B, X)) == [("c", "d")] * 3


def test_a_program_wins_over_its_leaves_and_over_programs_inside() -> None:
    inner = tp.program("e f -> e f")(A_B)
    assert results(tp.trace(SIN >> inner, X)) == [("e", "f")] * 3
    assert results(tp.trace(SIN >> tp.program("g h -> g h")(lambda x: inner(x)), X)) == [("g", "h")] * 3
    assert results(tp.trace(A_B >> inner, X)) == [("e", "f")] * 3


def test_the_names_of_tensors_win_over_all() -> None:
    kind = TensorType([("row", 3), (None, 3)])
    assert results(tp.trace(A_B >> tp.program("e f -> e f")(C_D), kind)) == [("row", "f")] * 3


def test_unrelated_tensors_under_one_local_name_stay_two_dimensions() -> None:
    graph = tp.trace(lambda x, y: (A_B(x), A_B(y)), jnp.ones((3, 4)), jnp.ones((3, 4)))
    assert results(graph)[:2] == [("a", "b"), ("a_1", "b_1")]
    chain = tp.trace(lambda x, v, w: MATMUL(SIN(MATMUL(x, v)), w), X, X, X)
    assert results(chain)[:3] == [("i", "k"), ("k", "n"), ("n", "n_1")]


def test_a_number_is_one_that_nobody_took() -> None:
    graph = tp.trace(lambda x, y: (A_B(x), A_B(y)), TensorType({"a": 3, "a_1": 3}), X)
    assert results(graph)[1] == ("a_2", "b")


def test_renaming_one_axis_does_not_fix_the_others() -> None:
    def program(x: Any, w: Any) -> Any:
        y = A_B(x).rename(a="rows")
        return tp.einsum("r s, s t -> r t")(y, w)

    # `b` is only suggested, so it may become what the other operand calls it.
    assert results(tp.trace(program, X, TensorType({"embed": 3, "out": 3})))[0] == ("a", "embed")


def test_names_are_no_part_of_the_key_where_they_are_suggested() -> None:
    first = tp.trace(lambda x, v: SIN(MATMUL(x, v)), X, X)
    second = tp.trace(lambda x, v: MATMUL(SIN(SIN(SIN(x))), v), X, X).subgraph("einsum")
    assert first.subgraph("einsum").key == second.key
    assert Graph.from_json(first.to_json()).key == first.key
    assert Graph.from_json(first.to_json()).suggested == first.suggested == {"i", "k", "n"}


def test_names_change_no_numbers() -> None:
    x, v, w = (jnp.asarray(np.float32(np.random.default_rng(seed).normal(size=(3, 3)))) for seed in range(3))
    chain = tp.einsum("i k, k n -> i n").bind(v) >> tp.rearrange("i k -> k i") >> tp.einsum("k i, i m -> k m").bind(w)
    np.testing.assert_allclose(chain(x), (x @ v).T @ w, rtol=1e-5)
