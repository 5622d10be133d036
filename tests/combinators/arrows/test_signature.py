"""The signature of a program is held against what the program returns."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import combinators as tp
from combinators import SignatureError, TensorType

SIN = tp.Map(jnp.sin)
X = jnp.ones((4, 4))
NAMED = TensorType({"row": 4, "col": 4})
EVERY_OTHER = tp.Map(lambda x: x[::2], "(2*a) b -> a b")
SUMS = tp.Map(lambda x: x[1:] + x[:-1], "(y+[k]) b -> y b", sizes={"k": 2})
BLUR = tp.Map(lambda x: x[2:] + x[:-2], "(y+[k]-1) b -> y b", sizes={"k": 3}, boundary="periodic")
FLIP = tp.Map(lambda x: x[::-1], "(3-a) b -> a b")
SUM = tp.Reduce(lambda x: x.sum(0), "a b -> b", tp.monoids.Sum)
SPLIT = tp.rearrange("(h d) b -> h d b", h=2) >> tp.rearrange("h d b -> (h d) b")
WHOLE = tp.Map(lambda x: jnp.cumsum(x, 0), "[a] b -> [a] b")

TRUE = [
    ("a b -> a b", SIN),
    ("... -> ...", SIN),
    ("... b -> ... b", SIN),
    ("a b -> b a", tp.rearrange("a b -> b a")),
    ("a b -> (a b)", tp.rearrange("a b -> (a b)")),
    ("a b -> a h d", tp.rearrange("a (h d) -> a h d", h=2)),
    ("(h d) b -> (h d) b", SIN),
    ("(h d) b -> h d b", tp.rearrange("(h d) b -> h d b", h=2)),
    ("(2*a) b -> a b", EVERY_OTHER),
    ("(y+[k]) b -> y b", SUMS),
    ("y b -> y b", SUMS),
    ("(y+[k]-1) b -> y b", BLUR),
    ("(3-a) b -> a b", FLIP),
    ("(a+1) b -> a b", lambda v: v[1:]),
    ("(2*a+1) b -> a b", lambda v: SIN(v)[1::2]),
    ("(3-a) b -> a b", lambda v: v[::-1]),
    ("(3-2*a) b -> a b", FLIP >> EVERY_OTHER),
    ("(2*y+[k]) b -> y b", SUMS >> tp.Map(lambda x: x[::2], "(2*a) b -> a b")),
    ("(y+[k]) b -> y b", SUMS >> SUMS),
    ("(y+2*[k]) b -> y b", lambda v: v[2:] + v[:-2]),
    ("(y+[k]) b -> y b", lambda v: v[2:] + v[:-2]),
    ("(y+[k]+2*[j]-1) b -> y b", BLUR >> tp.Map(lambda x: x[2:] + x[:-2], "(y+2*[j]) b -> y b", sizes={"j": 2})),
    ("(2*a) b -> a b", SPLIT >> EVERY_OTHER),
    ("(2*a) b -> a b", EVERY_OTHER >> tp.rearrange("(h d) b -> h d b", h=2) >> tp.rearrange("h d b -> (h d) b")),
    ("(2*a) b -> (a b)", EVERY_OTHER >> tp.rearrange("a b -> (a b)")),
    ("(2*a) (h d) -> a (h d)", EVERY_OTHER),
    ("(2*a) b -> b a", EVERY_OTHER >> tp.rearrange("a b -> b a")),
    ("(2*a) b -> b", EVERY_OTHER >> SUM),
    ("(2*a) b -> a b, b", EVERY_OTHER >> (SIN & SUM)),
    ("a (b+1) -> a b", lambda v: v[:, 1:]),
    ("a b -> b", tp.einsum("a b -> b")),
    ("a [c] -> a [c]", SIN),
    ("a b -> a 1", tp.Map(lambda x: x[:, :1], "a [b] -> a 1")),
    ("a b -> a b, b", SIN & tp.einsum("a b -> b")),
    ("a b -> a b", tp.rearrange("a (h d) -> a h d", h=2) >> tp.rearrange("a h d -> a (h d)")),
]

FALSE = [
    ("a b -> c d", SIN, "this axis is `a` of operand 0, and not `c`"),
    ("a b -> a c", SIN, "this axis is `b` of operand 0, and not `c`"),
    ("a b -> b a", SIN, "this axis is `a` of operand 0, and not `b`"),
    ("a b -> a", SIN, "expected (a), got"),
    ("a b -> a b 1", SIN, "expected (a, b, 1), got"),
    ("a b -> b", tp.rearrange("a b -> (a b)"), "this axis is a new one of size 16, and `b` has the size 4"),
    ("a b -> a 1", SIN, "this axis is `b` of operand 0, and not `1`"),
    ("(2*a) b -> a b", SIN, "`a` is 4, and `(2*a)` reads 4 cells"),
    ("(2*a+1) b -> a b", SIN, "`a` is 4, and `(2*a+1)` reads 4 cells"),
    ("a (3*b) -> a b", SIN, "`b` is 4, and `(3*b)` reads 4 cells"),
    ("(y+[k]) b -> b y", SIN, "this axis is `(y+[k])` of operand 0, and not `b`"),
    ("(h d) b -> h b", SIN, "this axis is `(h d)` of operand 0, and not `h`"),
    ("(h d) b -> h d b", tp.rearrange("a (h d) -> h d a", h=2), "this axis is `(h d)` of operand 0, and not `b`"),
    ("a b -> (a b)", tp.rearrange("a b -> a b 1") >> tp.einsum("a b c -> a"), "this axis is `a` of operand 0"),
    ("a [c] -> [c] a", SIN, "this axis is `a` of operand 0, and not `[c]`"),
    ("a [c] -> a d", SIN, "this axis is `[c]` of operand 0, and not `d`"),
    ("(a+1) b -> a b", SIN, "result 0 reads `a` of this axis, and not `(a+1)`"),
    ("(3-a) b -> a b", SIN, "result 0 reads `a` of this axis, and not `(-a+3)`"),
    ("(a+[w]) b -> a b", SIN, "result 0 reads `a` of this axis, and not `(a+[w])`"),
    ("(a-t) b -> a b", SIN, "result 0 reads `a` of this axis, and not `(a-t)`"),
    ("a (b+1) -> a b", SIN, "result 0 reads `b` of this axis, and not `(b+1)`"),
    ("(2*a+1) b -> a b", EVERY_OTHER, "result 0 reads `2*a` of this axis, and not `(2*a+1)`"),
    ("(2*a+1) b -> b", EVERY_OTHER >> SUM, "result 0 reads `0`, `2` of this axis, and not `(2*a+1)`"),
    ("(y+[k]-1) b -> y b", SUMS, "result 0 reads `y`, `y+1` of this axis, and not `(y+[k]-1)`"),
    ("(y+[k]) b -> y b", BLUR, "result 0 reads `y-1`, `y`, `y+1` of this axis, and not `(y+[k])`"),
    ("(a+1) b -> a b", FLIP, "result 0 reads `-a+3` of this axis, and not `(a+1)`"),
    ("(2*a) b -> (a b)", lambda v: tp.rearrange("a b -> (a b)")(v[1::2]), "result 0 reads `2*a+1` of this axis"),
    ("(a+1) b -> a b", WHOLE, "` takes `[a]` whole"),
    ("(a+1) b -> a b", tp.Scan(tp.monoids.Sum, "a b -> a b", "a"), "scan` runs along `a`"),
    ("(a+1) b -> a b", lambda v: tp.iterate(SIN, 2)(v)[1:], "cannot be told: they go through the loop"),
    ("(a+1) b -> a b", lambda v: v[1:3], "`a` is 2, and `(a+1)` reads 4 cells"),
    ("(a+[k]) b -> a b", lambda v: v[1:3] + v[:2], "`a` is 2, and `(a+[k])` reads 4 cells"),
    ("a b -> ... a b", SIN, "on the right alone"),
    ("... b -> b ...", SIN, ""),
    ("a b -> a b, b", SIN & SIN, "expected (b), got"),
    ("a b -> a b, b a", SIN & SIN, "this axis is `a` of operand 0, and not `b`"),
]


def inside(program: Any) -> Any:
    return lambda x: program(SIN(x))


def composed(program: Any) -> Any:
    return SIN >> program


@pytest.mark.parametrize("place", [lambda program: program, inside, composed], ids=["whole", "inside", "composed"])
@pytest.mark.parametrize("operand", [X, NAMED], ids=["array", "named"])
class TestClaims:
    @pytest.mark.parametrize(("signature", "arrow"), TRUE, ids=[text for text, _ in TRUE])
    def test_a_true_signature_is_accepted(self, signature: str, arrow: Any, place: Any, operand: Any) -> None:
        tp.trace(place(tp.program(signature)(arrow)), operand)

    @pytest.mark.parametrize(("signature", "arrow", "problem"), FALSE, ids=[text for text, _, _ in FALSE])
    def test_a_false_signature_is_refused_with_a_caret(
        self, signature: str, arrow: Any, problem: str, place: Any, operand: Any
    ) -> None:
        with pytest.raises(SignatureError) as caught:
            tp.trace(place(tp.program(signature)(arrow)), operand)
        assert problem in str(caught.value) and "^" in str(caught.value)


def test_a_false_signature_shows_what_came() -> None:
    with pytest.raises(SignatureError) as caught:
        tp.trace(tp.program("a b -> a c")(lambda v: SIN(v)), NAMED)
    assert str(caught.value) == (
        "`lambda` does not return what its signature says\n"
        "  a b -> a c\n"
        "           ^\n"
        "  got Value(float32(row=4, col=4))\n"
        "  this axis is `b` of operand 0, and not `c`\n"
        "  Mend the signature, or what the function returns."
    )


def test_two_dimensions_that_the_function_makes_one_are_refused() -> None:
    def add(x: Any, y: Any) -> Any:
        return tp.program("a b, c b -> a b")(lambda u, v: u + v)(SIN(x), y)

    with pytest.raises(SignatureError, match="`a` and `c` are one dimension"):
        tp.trace(add, X, X)


def test_two_dimensions_that_the_caller_makes_one_are_accepted() -> None:
    both = tp.program("q d, k d -> q k")(lambda q, k: tp.einsum("q d, k d -> q k")(q, k.rename(row="keys")))
    with pytest.raises(SignatureError, match="`k` is `row`, and this axis is `keys`"):
        tp.trace(lambda x: both(x, x), NAMED)
    rows = tp.program("q d, k d -> q")(lambda q, k: tp.einsum("q d -> q")(q))
    assert tp.trace(lambda x: rows(x, x), NAMED).nodes[-1].results[0].names == ("row",)


def test_compositions_of_operands_are_held_against_results() -> None:
    split = tp.program("(h d) b -> h d b")(lambda x: tp.rearrange("(h d) b -> h d b", h=2)(x))
    assert split(jnp.ones((6, 1))).shape == (2, 3, 1)
    wrong = tp.program("(h d) b -> h d b")(
        lambda x: tp.Map(lambda x: x[:1], "[h] d b -> [one] d b", sizes={"one": 1})(
            tp.rearrange("(h d) b -> h d b", h=2)(x)
        )
    )
    with pytest.raises(SignatureError, match=r"`\(h d\)` is 1 \* 3, and this axis has the size 6"):
        wrong(jnp.ones((6, 1)))


def split(text: str) -> Any:
    return lambda x: tp.rearrange(text, h=2)(x)


def over(dims: str) -> Any:
    return lambda x: tp.einsum(f"h d b -> {dims}")(split("(h d) b -> h d b")(x))


OTHER_ORDER: dict[str, tuple[str, Any, str]] = {
    "split": ("(h d) b -> h d b", split("(d h) b -> h d b"), "reads `h+2*d` of this axis, which is not `(h d)`"),
    "split into another order": ("(h d) b -> d h b", split("(d h) b -> d h b"), "which is not `(h d)`"),
    "put together": ("a b -> (a b)", lambda x: tp.rearrange("a b -> (b a)")(x), "which is not `a` in `(a b)`"),
    "split anew": ("a (h d) -> (a h) d", split("a (d h) -> (a h) d"), "which is not `(h d)`"),
    "one of them": ("(h d) b -> h b", lambda x: split("(d h) b -> d h b")(x)[0], "which is not `(h d)`"),
    "the other one": ("(h d) b -> h b", over("d b"), "which is not `(h d)`"),
    "each for the other": ("(h d) b -> h b, d b", lambda x: (over("d b")(x), over("h b")(x)), "result 0 reads"),
}
ITS_ORDER: dict[str, tuple[str, Any]] = {
    "split": ("(h d) b -> h d b", split("(h d) b -> h d b")),
    "split into another order": ("(h d) b -> (d h) b", split("(h d) b -> (d h) b")),
    "put together": ("a b -> (b a)", lambda x: tp.rearrange("a b -> (b a)")(x)),
    "split anew": ("a (h d) -> (a h) d", split("a (h d) -> (a h) d")),
    "one of them": ("(h d) b -> h b", lambda x: split("(h d) b -> d h b")(x)[1]),
    "backwards": ("(h d) b -> h d b", lambda x: split("(h d) b -> h d b")(x)[::-1]),
    "folded": ("(h d) b -> h b", over("h b")),
    "beside itself": ("a b -> (a b)", lambda x: tp.rearrange("a b -> (a b)")(x + x[::-1])),
    "through a loop": ("a b -> (a b)", lambda x: tp.rearrange("a b -> (a b)")(tp.iterate(SIN, 2)(x))),
}


@pytest.mark.parametrize("name", OTHER_ORDER)
def test_dimensions_that_lie_in_another_order_in_a_composition_are_refused(name: str) -> None:
    signature, arrow, problem = OTHER_ORDER[name]
    with pytest.raises(SignatureError) as caught:
        tp.trace(tp.program(signature)(arrow), X)
    assert problem in str(caught.value) and "^" in str(caught.value)


@pytest.mark.parametrize("name", ITS_ORDER)
def test_dimensions_that_lie_as_a_composition_says_are_accepted(name: str) -> None:
    signature, arrow = ITS_ORDER[name]
    tp.trace(tp.program(signature)(arrow), X)


def test_operands_with_names_and_without_meet() -> None:
    product = tp.program("i k, k n -> i n")(lambda x, w: tp.einsum("i k, k n -> i n")(x, w))
    graph = tp.trace(product, TensorType({"n": 2, "embed": 3}), jnp.ones((3, 4)))
    # `n` is taken by another dimension, so the one that the signature calls so gets a number.
    assert [node.results[0].names for node in graph.nodes] == [("n", "embed"), ("embed", "n_1"), ("n", "n_1")]


def test_a_false_window_shows_what_is_read_and_the_way_out() -> None:
    with pytest.raises(SignatureError) as caught:
        tp.trace(tp.program("(a+3) b -> a b")(lambda v: SIN(v)), NAMED)
    assert str(caught.value) == (
        "`lambda` does not return what its signature says\n"
        "  (a+3) b -> a b\n"
        "  ^^^^^\n"
        "  result 0 reads `a` of this axis, and not `(a+3)`\n"
        "  Write what is read, or the plain name `a`, which leaves it open."
    )
    with pytest.raises(SignatureError) as caught:
        tp.trace(tp.program("(a+3) b -> a b")(lambda v: WHOLE(v)), NAMED)
    assert "  Write the plain name `a`, which leaves it open." in str(caught.value)
    tp.trace(tp.program("a b -> a b")(lambda v: WHOLE(v)), NAMED)


def test_windows_whose_size_an_operand_tells_have_that_size() -> None:
    blur = tp.Reduce(
        lambda x, w: sum(x[k : k + x.shape[0] - 1] * w[k] for k in range(2)), "(y+[k]) b, [k] -> y b", tp.monoids.Sum
    )
    claimed = tp.program("(y+[k]) b, [k] -> y b")(lambda x, w: blur(x, w[:2]))
    tp.trace(claimed, X, jnp.ones(2))
    with pytest.raises(SignatureError, match=r"reads `y`, `y\+1` of this axis, and not"):
        tp.trace(claimed, X, jnp.ones(3))


def test_one_tensor_may_come_in_as_several_operands() -> None:
    product = tp.Map(lambda x, y: x[:-1] * y, "(a+[k]) b, (a+1) b -> a b", sizes={"k": 2})
    claimed = tp.program("(a+[k]) b, (a+1) b -> a b")(product)
    tp.trace(lambda x: claimed(x, x), X)
    plain = tp.program("(a+1) b, a b -> a b")(lambda x, y: x[1:] * y[:-1])
    tp.trace(lambda x: plain(x, x), X)
    with pytest.raises(SignatureError, match="reads `a` of this axis"):
        tp.trace(lambda x: tp.program("(a+1) b, a b -> a b")(lambda x, y: SIN(x))(x, x), X)
    tp.trace(lambda x: tp.program("(a+1) b, a b -> a b")(lambda x, y: SIN(y))(x, SIN(x)), X)


def test_what_stands_around_a_loop_is_followed_inside() -> None:
    def steps(claimed: Any) -> Any:
        return lambda x, y: tp.iterate(tp.program("a b -> a b")(lambda v: v + claimed(y)), 2)(x)

    tp.trace(steps(tp.program("(a+1) b -> a b")(lambda v: v[1:])), X[:3], X)
    with pytest.raises(SignatureError, match="reads `a` of this axis"):
        tp.trace(steps(tp.program("(a+1) b -> a b")(lambda v: SIN(v)[:3])), X[:3], X)
