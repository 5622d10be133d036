"""Sizes of dimensions: JAX, NumPy and an enumeration of every read are the references."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.errors import SignatureError
from combinators.index_space.axis import Axis
from combinators.index_space.boundary import BOUNDARIES, boundary_modes
from combinators.index_space.extent import axis_extent, axis_size
from combinators.index_space.signature import Signature
from combinators.index_space.sizes import solve_sizes

CONV = "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o"
ATTENTION = "b h q [d], b h k [d], b h k e, @q, @k -> b h q e"
IMAGE = jax.ShapeDtypeStruct((8, 224, 225, 3), jnp.float32)
WEIGHTS = jax.ShapeDtypeStruct((7, 7, 3, 64), jnp.float32)


def solve(
    text: str,
    *shapes: tuple[int, ...] | None,
    given: Mapping[str, int] | None = None,
    boundary: str | tuple[str, ...] = "valid",
) -> dict[str, int]:
    return solve_sizes(Signature.parse(text), shapes, given=given, boundary=boundary)


def axis_of(text: str) -> Axis:
    return Signature.parse(f"{text} -> ").operands[0].axes[0]


def error_of(
    text: str,
    *shapes: tuple[int, ...] | None,
    given: Mapping[str, int] | None = None,
    boundary: str | tuple[str, ...] = "valid",
) -> str:
    with pytest.raises(SignatureError) as caught:
        solve_sizes(Signature.parse(text), shapes, given=given, boundary=boundary, where="op")
    return str(caught.value)


def cells_read(axis: Axis, sizes: Mapping[str, int]) -> list[int]:
    boxes = itertools.product(*(range(sizes[term.name]) for term in axis.terms))
    return [axis.offset + sum(t.coefficient * i for t, i in zip(axis.terms, index, strict=True)) for index in boxes]


def test_sizes_of_matmul() -> None:
    assert solve("i k, k n -> i n", (3, 4), (4, 5)) == {"i": 3, "k": 4, "n": 5}


def test_sizes_of_softmax_expand_the_ellipsis() -> None:
    assert solve("... [c] -> ... [c]", (2, 3, 4)) == {"...0": 2, "...1": 3, "c": 4}


def test_sizes_of_attention_ignore_the_coordinates() -> None:
    sizes = solve(ATTENTION, (2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 9), None, (99, 99))
    assert sizes == {"b": 2, "h": 4, "q": 16, "d": 8, "k": 32, "e": 9}
    assert list(sizes) == list(Signature.parse(ATTENTION).dims)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("n", [5, 6, 7, 12, 13])
def test_sizes_of_a_convolution_are_those_of_jax(stride: int, dilation: int, n: int) -> None:
    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (stride,), "VALID", rhs_dilation=(dilation,))

    expected = jax.eval_shape(convolve, jnp.zeros((1, 1, n)), jnp.zeros((1, 1, 3))).shape[2]
    assert solve(f"({stride}*y+{dilation}*dy), dy -> y", (n,), (3,))["y"] == expected


def test_sizes_of_a_strided_image_convolution_are_those_of_jax() -> None:
    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    sizes = solve(CONV, IMAGE.shape, WEIGHTS.shape)
    assert tuple(sizes[name] for name in "byxo") == jax.eval_shape(convolve, IMAGE, WEIGHTS).shape


@pytest.mark.parametrize("boundary", BOUNDARIES[1:])
@pytest.mark.parametrize("stride", [1, 2, 3, -2])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7])
def test_sizes_with_a_boundary_are_those_of_same_padding(boundary: str, stride: int, n: int) -> None:
    expected = -(-n // abs(stride))
    if n:
        same = jax.lax.padtype_to_pads((n,), (3,), (abs(stride),), "SAME")
        padded = jnp.zeros((1, 1, n + sum(same[0])))
        expected = jax.lax.conv(padded, jnp.zeros((1, 1, 3)), (abs(stride),), "VALID").shape[2]
    assert solve(f"({stride}*y+[dy]-1), [dy] -> y", (n,), (3,), boundary=boundary)["y"] == expected


@pytest.mark.parametrize("width", [1, 2, 5])
def test_sizes_of_a_moving_window_are_those_of_numpy(width: int) -> None:
    expected = np.lib.stride_tricks.sliding_window_view(np.zeros(5), width).shape[0]
    assert solve("(y+[dy]) -> y", (5,), given={"dy": width})["y"] == expected


@pytest.mark.parametrize("coefficients", list(itertools.product((-3, -1, 1, 2), (-2, 1, 3))))
@pytest.mark.parametrize("offset", [-1, 0, 2, 7])
def test_valid_size_is_the_largest_whose_reads_exist(coefficients: tuple[int, int], offset: int) -> None:
    text = f"({coefficients[0]}*y+{coefficients[1]}*dy+{offset}), dy -> y".replace("+-", "-")
    axis = Signature.parse(text).operands[0].axes[0]
    for n, width in itertools.product(range(12), range(1, 5)):
        if min(cells_read(axis, {"y": 1, "dy": width})) < 0:
            assert "outside of" in error_of(text, (n,), (width,))
            continue
        fits = [size for size in range(14) if all(0 <= cell < n for cell in cells_read(axis, {"y": size, "dy": width}))]
        assert solve(text, (n,), (width,))["y"] == max(fits)


@pytest.mark.parametrize("text", ["(2*y+3*dy-1)", "(-y+9)", "(-2*y+dy)", "(y-dy-[e]+4)", "y", "[c]", "(h d)", "1"])
def test_extent_spans_exactly_what_the_box_reads(text: str) -> None:
    axis = axis_of(text)
    for extents in itertools.product((1, 2, 4), repeat=len(axis.names)):
        sizes = dict(zip(axis.names, extents, strict=True))
        if axis.kind == "affine":
            cells = cells_read(axis, sizes)
        else:
            cells = list(range(int(np.prod(extents, dtype=int))))
        assert axis_extent(axis, sizes) == (min(cells), max(cells) + 1)


@pytest.mark.parametrize("text", ["(2*y+dy-1)", "y", "(y dy)"])
def test_extent_of_an_empty_box_is_empty(text: str) -> None:
    assert axis_extent(axis_of(text), {"y": 0, "dy": 3}) == (0, 0)


def test_size_of_an_axis_is_the_product_of_its_dimensions() -> None:
    sizes = {"h": 3, "d": 5}
    assert [axis_size(axis_of(text), sizes) for text in ("h", "[d]", "(h d)", "1")] == [3, 5, 15, 1]


def test_size_of_an_affine_axis_is_an_error() -> None:
    with pytest.raises(SignatureError, match="do not give the size of its axis"):
        axis_size(axis_of("(2*y)"), {"y": 3})


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"h": 8}, {"b": 2, "s": 5, "h": 8, "d": 6}), ({"d": 16}, {"b": 2, "s": 5, "h": 3, "d": 16})],
)
def test_sizes_of_a_split_come_from_the_given_factor(given: dict[str, int], expected: dict[str, int]) -> None:
    assert solve("b s (h d) -> b s h d", (2, 5, 48), given=given) == expected


def test_sizes_of_a_merge_come_from_the_operand() -> None:
    assert solve("b s h d -> b s (h d)", (2, 5, 4, 6)) == {"b": 2, "s": 5, "h": 4, "d": 6}


def test_sizes_are_solved_across_operands_in_any_order() -> None:
    sizes = solve("(h d), (y+h), (d e), e -> y", (12,), (9,), (8,), (2,))
    assert sizes == {"h": 3, "d": 4, "y": 7, "e": 2}


def test_sizes_take_the_smallest_of_several_windows() -> None:
    for text, shapes in (("(y+[dy]), (2*y), [dy] -> y", ((9,), (7,), (3,))), ("(2*y), (y+2) -> y", ((7,), (9,)))):
        assert solve(text, *shapes)["y"] == 4


def test_size_from_a_bare_axis_may_be_less_than_a_window_allows() -> None:
    assert solve("(y+[dy]), [dy], y -> y", (9,), (3,), (5,))["y"] == 5


def test_sizes_solve_the_width_of_a_window() -> None:
    assert solve("(2*y+[dy]), y -> y", (9,), (3,)) == {"y": 3, "dy": 5}


def test_boundary_leaves_the_width_of_a_window_open() -> None:
    assert "do not give the size of `dy`" in error_of("(y+[dy]), y -> y", (9,), (9,), boundary="zero")


def test_boundary_may_differ_by_axis() -> None:
    sizes = solve("b (y+[d]-1) (x+[d]), [d] -> b y x", (2, 9, 9), (3,), boundary=("zero", "valid"))
    assert (sizes["y"], sizes["x"]) == (9, 7)


def test_boundary_modes_are_one_for_each_window() -> None:
    signature = Signature.parse(CONV)
    assert boundary_modes(signature, "edge") == ("edge", "edge")
    assert boundary_modes(signature, ("zero", "valid")) == ("zero", "valid")
    assert boundary_modes(Signature.parse("i k -> i"), "edge") == ()


def test_sizes_past_32_bits_are_exact() -> None:
    n = 3 * 2**40 + 1
    assert solve("(3*y), (h d) -> y h d", (n,), (2**80,), given={"d": 2**35}) == {
        "y": 2**40 + 1,
        "h": 2**45,
        "d": 2**35,
    }


@pytest.mark.parametrize(
    ("text", "shapes", "given", "expected"),
    [
        ("i k, k n -> i n", ((0, 4), (4, 0)), {}, {"i": 0, "k": 4, "n": 0}),
        ("(h d) -> h d", ((0,),), {"d": 4}, {"h": 0, "d": 4}),
        ("(y+[dy]), [dy] -> y", ((0,), (3,)), {}, {"y": 0, "dy": 3}),
        ("(y+[dy]), [dy], y -> y", ((0,), (0,), (5,)), {}, {"y": 5, "dy": 0}),
        ("(y+[dy]-1), y, [dy] -> y", ((0,), (0,), (3,)), {}, {"y": 0, "dy": 3}),
    ],
)
def test_sizes_of_empty_tensors_are_legal(
    text: str, shapes: tuple[tuple[int, ...], ...], given: dict[str, int], expected: dict[str, int]
) -> None:
    assert solve(text, *shapes, given=given) == expected


def test_sizes_of_generated_dimensions_are_given() -> None:
    assert solve("@q -> q k", None, given={"q": 3, "k": 4}) == {"q": 3, "k": 4}


Case = tuple[str, *tuple[tuple[int, ...] | None, ...]]

ERRORS: list[tuple[Case, str]] = [
    (
        ("i k, k n -> i n", (3, 4), (5, 6)),
        "operand 1 of `op` does not fit its signature.\n"
        "  i k, k n -> i n\n"
        "       ^\n"
        "  its shape is (5, 6)\n"
        "  `k` is 5 here, and 4 by operand 0 of shape (3, 4)\n"
        "  Make the two sizes of `k` equal, or use two names.",
    ),
    (
        ("... [c], ... -> ... [c]", (2, 3, 4), (2, 5)),
        "operand 1 of `op` does not fit its signature.\n"
        "  ... [c], ... -> ... [c]\n"
        "           ^^^\n"
        "  its shape is (2, 5)\n"
        "  `...1` is 5 here, and 3 by operand 0 of shape (2, 3, 4)\n"
        "  Make the two sizes of `...1` equal, or use two names.",
    ),
    (
        ("i k, k n -> i n", (3, 4), (5, 6, 7)),
        "operand 1 of `op` does not have the axes of its signature.\n"
        "  i k, k n -> i n\n"
        "       ^^^\n"
        "  expected 2 axes, got 3\n"
        "  Pass an operand with 2 axes, or change the signature.",
    ),
    (
        ("b s (h d) -> b s h d", (2, 5, 48)),
        "the operands of `op` do not give the size of `h`, `d`.\n"
        "  b s (h d) -> b s h d\n"
        "      ^^^^^        ^ ^\n"
        "  the operands are (2, 5, 48)\n"
        "  Give it by sizes=dict(h=..., d=...).",
    ),
    (
        ("a 1 -> a", (2, 3)),
        "operand 0 of `op` does not fit its signature.\n"
        "  a 1 -> a\n"
        "    ^\n"
        "  its shape is (2, 3)\n"
        "  the size of `1` is 1, got 3\n"
        "  Name the axis, or pass an axis of size 1.",
    ),
    (
        ("h d (h d) -> h", (3, 5, 12)),
        "operand 0 of `op` does not fit its signature.\n"
        "  h d (h d) -> h\n"
        "      ^^^^^\n"
        "  its shape is (3, 5, 12)\n"
        "  `(h d)` is 3 * 5, which is not 12\n"
        "  Make the sizes agree.",
    ),
    (
        ("(y+[dy]-1), [dy] -> y", (9,), (3,)),
        "operand 0 of `op` does not fit its signature.\n"
        "  (y+[dy]-1), [dy] -> y\n"
        "  ^^^^^^^^^^\n"
        "  its shape is (9,)\n"
        "  `(y+[dy]-1)` with dy=3 reads cell -1, outside of [0, 9)\n"
        "  Add an offset, or choose a boundary other than 'valid'.",
    ),
    (
        ("y, (2*y+1) -> y", (5,), (9,)),
        "operand 1 of `op` does not fit its signature.\n"
        "  y, (2*y+1) -> y\n"
        "     ^^^^^^^\n"
        "  its shape is (9,)\n"
        "  `(2*y+1)` with y=5 reads cell 9, outside of [0, 9)\n"
        "  Pass a larger operand, or choose a boundary other than 'valid'.",
    ),
    (
        ("(y+[dy]), [dy] -> y", (9,), (0,)),
        "the operands of `op` do not give the size of `y`.\n"
        "  (y+[dy]), [dy] -> y\n"
        "  ^^^^^^^^          ^\n"
        "  the operands are (9,), (0,)\n"
        "  Give it by sizes=dict(y=...).",
    ),
    (
        ("@q, ... a -> ... q", None, (3, 4)),
        "the operands of `op` do not give the size of `q`.\n"
        "  @q, ... a -> ... q\n"
        "                   ^\n"
        "  the operands are a coordinate, (3, 4)\n"
        "  Give it by sizes=dict(q=...).",
    ),
]


@pytest.mark.parametrize(("case", "error"), ERRORS)
def test_sizes_error_shows_the_axis_and_one_remedy(case: Case, error: str) -> None:
    text, *shapes = case
    assert error_of(text, *shapes) == error


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"k": 5}, "`k` is 4 here, and 5 by the given sizes"),
        ({"z": 5}, "no dimension `z` to give a size to"),
        ({"k": -1}, "expected an integer of at least 0, got -1"),
        ({"k": 4.0}, "expected an integer of at least 0, got 4.0"),
        ({"k": True}, "expected an integer of at least 0, got True"),
    ],
)
def test_given_sizes_are_checked(given: dict[str, int], error: str) -> None:
    assert error in error_of("i k, k n -> i n", (3, 4), (4, 6), given=given)


def test_given_size_that_does_not_divide_is_an_error() -> None:
    assert "48 is no multiple of 7 * d for any `d`" in error_of("(h d) -> h d", (48,), given={"h": 7})


@pytest.mark.parametrize(
    ("boundary", "error"),
    [("mirror", "unknown boundary 'mirror'"), (("zero", "mirror"), "unknown boundary 'mirror'"), (("zero",), "got 1")],
)
def test_boundary_is_checked(boundary: str | tuple[str, ...], error: str) -> None:
    assert error in error_of(CONV, IMAGE.shape, WEIGHTS.shape, boundary=boundary)


@pytest.mark.parametrize("boundary", ["periodic", "reflect", "edge"])
def test_boundary_of_an_empty_axis_has_no_cell_to_read(boundary: str) -> None:
    assert "has no cell to read" in error_of("(y+1), y -> y", (0,), (5,), boundary=boundary)
    assert solve("(y+1), y -> y", (0,), (5,), boundary="zero")["y"] == 5


def test_sizes_take_numpy_integers_and_give_python_ones() -> None:
    sizes = solve("i k -> i", (np.int64(3), np.int64(4)))
    assert [type(size) for size in sizes.values()] == [int, int]
