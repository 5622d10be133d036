"""Signatures: what their text means, how it is printed, and how errors in it are shown."""

from __future__ import annotations

import copy
import pickle

import pytest

from combinators.errors import SignatureError
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.index_space.tokens import underline

MATMUL = "i k, k n -> i n"
CONV = "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o"
ATTENTION = "b h q [d], b h k [d], b h k e, @q, @k -> b h q e"

# text, map, fold, whole, generated
ROLES = [
    (MATMUL, "i n", "k", "", ""),
    (CONV, "b y x o", "c", "dy dx", ""),
    (ATTENTION, "b h q e", "k", "d", ""),
    ("... [c] -> ... [c]", "", "", "c", ""),
    ("b s (h d) -> b s h d", "b s h d", "", "", ""),
    ("b k l, l k -> b", "b", "k l", "", ""),
    ("row col -> col", "col", "row", "", ""),
    ("-> y x", "", "", "", "y x"),
    ("b, -> b", "b", "", "", ""),
    ("b -> ", "", "b", "", ""),
    ("@q -> q", "", "", "", "q"),
    ("z a -> a z", "a z", "", "", ""),
    ("-> [c]", "", "", "c", ""),
]


@pytest.mark.parametrize(("text", "mapped", "folded", "whole", "generated"), ROLES)
def test_signature_dimensions_have_roles(text: str, mapped: str, folded: str, whole: str, generated: str) -> None:
    signature = Signature.parse(text)
    roles = {
        "map": signature.map_dims,
        "fold": signature.fold_dims,
        "whole": signature.whole_dims,
        "generated": signature.generated_dims,
    }
    assert {role: " ".join(names) for role, names in roles.items()} == {
        "map": mapped,
        "fold": folded,
        "whole": whole,
        "generated": generated,
    }
    for role, names in roles.items():
        assert [signature.role(name) for name in names] == [role] * len(names)
    assert sorted(signature.dims) == sorted(name for names in roles.values() for name in names)


def test_signature_dims_are_in_order_of_first_appearance() -> None:
    assert Signature.parse(ATTENTION).dims == ("b", "h", "q", "d", "k", "e")


def test_signature_role_of_an_unknown_name_is_an_error() -> None:
    with pytest.raises(SignatureError, match="has no dimension `z`"):
        Signature.parse(MATMUL).role("z")


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("y", Axis("affine", (Term("y"),))),
        ("(y)", Axis("affine", (Term("y"),))),
        ("(1*y+0)", Axis("affine", (Term("y"),))),
        ("[c]", Axis("affine", (Term("c", whole=True),))),
        ("([c])", Axis("affine", (Term("c", whole=True),))),
        ("(2*y+3*dy-1)", Axis("affine", (Term("y", 2), Term("dy", 3)), -1)),
        ("(y+[dy]-1)", Axis("affine", (Term("y"), Term("dy", whole=True)), -1)),
        ("(-1*y+9)", Axis("affine", (Term("y", -1),), 9)),
        ("(-y+9)", Axis("affine", (Term("y", -1),), 9)),
        ("(9 - y + 1)", Axis("affine", (Term("y", -1),), 10)),
        ("(2*[dy]-3*y)", Axis("affine", (Term("dy", 2, whole=True), Term("y", -3)))),
        ("(h d)", Axis("composite", (Term("h"), Term("d")))),
        ("(h [d])", Axis("composite", (Term("h"), Term("d", whole=True)))),
        ("1", Axis("one")),
        ("(9223372036854775808*y)", Axis("affine", (Term("y", 2**63),))),
    ],
)
def test_signature_axis_means_its_expression(text: str, axis: Axis) -> None:
    assert Signature.parse(f"{text} -> ").operands[0].axes == (axis,)


def test_axis_properties_tell_the_kinds_apart() -> None:
    axes = Signature.parse("y [c] (y+1) (2*y) (h d) 1 -> y").operands[0].axes
    assert [axis.name for axis in axes] == ["y", None, None, None, None, None]
    assert [axis.whole_name for axis in axes] == [None, "c", None, None, None, None]
    assert [axis.is_bare for axis in axes] == [True, True, False, False, False, False]
    assert [axis.is_window for axis in axes] == [False, False, True, True, False, False]
    assert [axis.names for axis in axes] == [("y",), ("c",), ("y",), ("y",), ("h", "d"), ()]


def test_signature_name_that_is_whole_once_is_whole_everywhere() -> None:
    signature = Signature.parse("c (y+c) (h c), [c] -> y h c")
    assert str(signature) == "[c] (y+[c]) (h [c]), [c] -> y h [c]"


@pytest.mark.parametrize(
    ("text", "operands", "results"),
    [("-> b", 0, 1), ("b -> ", 1, 1), ("b, -> b", 2, 1), (", -> ", 2, 1), ("() -> ()", 1, 1), ("b -> b, b", 1, 2)],
)
def test_signature_counts_operands(text: str, operands: int, results: int) -> None:
    signature = Signature.parse(text)
    assert (len(signature.operands), len(signature.results)) == (operands, results)


def test_signature_empty_operand_is_a_0d_tensor() -> None:
    assert Signature.parse("b, -> b").operands[1] == Operand()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("i   k,k n->i n", MATMUL),
        (CONV, CONV),
        (ATTENTION, ATTENTION),
        ("b,->b", "b, () -> b"),
        ("b->", "b -> ()"),
        (" -> b", "-> b"),
        ("( -1 * y + 9 ) -> y", "(-y+9) -> y"),
        ("(2*y - 3 + dy + 1)\n-> y", "(2*y+dy-2) -> y"),
        ("...[c]->...[c]", "... [c] -> ... [c]"),
        ("...0 ...12 -> ...12 ...0", "...0 ...12 -> ...12 ...0"),
        ("\ufb01 -> fi", "fi -> fi"),  # a ligature, which Python reads as `fi` too
    ],
)
def test_signature_prints_canonical_text(text: str, canonical: str) -> None:
    signature = Signature.parse(text)
    assert str(signature) == canonical
    assert Signature.parse(canonical) == signature
    assert hash(Signature.parse(canonical)) == hash(signature)


def test_signatures_of_other_axes_differ() -> None:
    texts = ["y -> y", "[y] -> y", "(2*y) -> y", "(-2*y) -> y", "(2*y+1) -> y", "... y -> y", "1 y -> y", "y, @y -> y"]
    assert len({Signature.parse(text) for text in texts}) == len(texts)


def test_signature_survives_copy_and_pickle() -> None:
    signature = Signature.parse(CONV)
    assert signature.fold_dims == ("c",)
    assert copy.deepcopy(signature) == pickle.loads(pickle.dumps(signature)) == signature


def test_expand_replaces_the_ellipsis_by_numbered_axes() -> None:
    expanded = Signature.parse("... [c], x -> ... [c] x").expand(2)
    assert str(expanded) == "...0 ...1 [c], x -> ...0 ...1 [c] x"
    assert not expanded.has_ellipsis
    assert expanded.map_dims == ("...0", "...1", "x")
    assert Signature.parse(str(expanded)) == expanded


def test_expand_by_0_leaves_a_0d_operand_that_reads_back() -> None:
    expanded = Signature.parse("... -> ...").expand(0)
    assert expanded.operands == (Operand(),)
    assert Signature.parse(str(expanded)) == expanded


def test_expand_without_ellipsis_changes_nothing() -> None:
    assert Signature.parse(MATMUL).expand(3) == Signature.parse(MATMUL)


def test_expand_by_a_negative_rank_is_an_error() -> None:
    with pytest.raises(SignatureError, match="cannot stand for -1 axes"):
        Signature.parse("... -> ...").expand(-1)


@pytest.mark.parametrize(
    ("text", "ranks", "rank"),
    [
        ("... [c] -> ... [c]", [4], 3),
        ("... [c] -> ... [c]", [1], 0),
        ("... a, ... , b -> ... a b", [3, 2, 1], 2),
        ("... q, @q -> ... q", [2, None], 1),
        (MATMUL, [2, 2], 0),
    ],
)
def test_ellipsis_rank_is_what_the_axes_leave(text: str, ranks: list[int | None], rank: int) -> None:
    assert Signature.parse(text).ellipsis_rank(ranks) == rank


@pytest.mark.parametrize(
    ("text", "ranks", "error"),
    [
        (
            "... a, ... b -> ... a b",
            [2, 3],
            "the operands of `op` disagree on the number of axes of `...`.\n"
            "  ... a, ... b -> ... a b\n"
            "  ^^^^^  ^^^^^\n"
            "  operand 0 has 1, operand 1 has 2\n"
            "  Give all operands with `...` the same axes there.",
        ),
        (
            "... a b -> ... a b",
            [1],
            "operand 0 of `op` does not have the axes of its signature.\n"
            "  ... a b -> ... a b\n"
            "  ^^^^^^^\n"
            "  expected 2 or more axes, got 1\n"
            "  Pass an operand with 2 or more axes, or change the signature.",
        ),
        (
            MATMUL,
            [2, 3],
            "operand 1 of `op` does not have the axes of its signature.\n"
            "  i k, k n -> i n\n"
            "       ^^^\n"
            "  expected 2 axes, got 3\n"
            "  Pass an operand with 2 axes, or change the signature.",
        ),
        (
            MATMUL,
            [2],
            "wrong number of operands of `op`.\n"
            "  `i k, k n -> i n` has 2, got 1\n"
            "  Pass one shape for every operand, coordinates included.",
        ),
    ],
)
def test_ellipsis_rank_error_says_which_operand(text: str, ranks: list[int], error: str) -> None:
    with pytest.raises(SignatureError) as caught:
        Signature.parse(text).ellipsis_rank(ranks, where="op")
    assert str(caught.value) == error


# text, the line of carets, the problem
BAD = [
    ("", "^", "expected an axis, `,` or `->`, got the end"),
    ("i k", "   ^", "expected an axis, `,` or `->`, got the end"),
    ("i k -> i -> k", "         ^^", "expected an axis, `,` or the end, got `->`"),
    ("i ; k -> i", "  ^", "got ';', which no signature has"),
    ("i . k -> i", "  ^", "got '.', which no signature has"),
    ("i é² -> i", "   ^", "got '\\xb2', which no signature has"),
    ("2y -> y", "^", "expected an axis, got `2`"),
    ("1y -> y", " ^", "expected a space after `1`, got `y`"),
    ("2*y -> y", "^", "expected an axis, got `2`"),
    ("y+1 -> y", " ^", "expected an axis, `,` or `->`, got `+`"),
    ("(2y) -> y", "  ^", "expected `*` after the number, got `y`"),
    ("(y*2) -> y", "  ^", "expected `+`, `-` or `)`, got `*`"),
    ("(2*3) -> y", "   ^", "expected the name of a dimension after `*`, got `3`"),
    ("(y+) -> y", "   ^", "expected a number or the name of a dimension, got `)`"),
    ("(y+-1) -> y", "   ^", "expected a number or the name of a dimension, got `-`"),
    ("(3) -> ", " ^", "expected a dimension in the expression"),
    ("(1 + 2) -> ", " ^^^^^", "expected a dimension in the expression"),
    ("(y+y) -> y", "   ^", "`y` is twice in one axis"),
    ("(0*y) -> y", " ^", "the coefficient of `y` is 0"),
    ("(h h) -> h", "   ^", "`h` is twice in one axis"),
    ("(h d+1) -> h", "   ^", "expected `+`, `-` or `)`, got `d`"),
    ("(h 1) -> h", "   ^", "expected `+`, `-` or `)`, got `1`"),
    ("(h (d e)) -> h", "   ^", "expected the name of a dimension, got `(`"),
    ("(h d -> h", "     ^^", "expected the name of a dimension, got `->`"),
    ("(y+1 -> y", "     ^^", "expected `+`, `-` or `)`, got `->`"),
    ("b () -> b", "   ^", "expected the name of a dimension, got `)`"),
    ("() b -> b", "   ^", "expected the end of the operand, got `b`"),
    ("[c -> c", "   ^^", "expected `]`, got `->`"),
    ("[] -> ", " ^", "expected a name after `[`, got `]`"),
    ("[c d] -> ", "   ^", "expected `]`, got `d`"),
    ("[2*c] -> ", " ^", "expected a name after `[`, got `2`"),
    ("b] -> b", " ^", "expected an axis, `,` or `->`, got `]`"),
    ("... a ... -> a", "      ^^^", "expected an axis, `,` or `->`, got `...`"),
    ("... ... -> a", "    ^^^", "expected an axis, `,` or `->`, got `...`"),
    ("...01 -> a", "^^^^^", "got `...01`"),
    ("... ...0 -> ...", "    ^^^^", "`...` and one of its expanded names"),
    ("a -> ... a", "     ^^^^^", "`...` is on the right alone"),
    ("a @a -> a", "  ^", "expected an axis, `,` or `->`, got `@`"),
    ("@ -> a", "  ^^", "expected the name of a dimension after `@`, got `->`"),
    ("@a b -> a", "   ^", "expected `,` or `->` after a coordinate, got `b`"),
    ("a, @q -> a", "   ^^", "no operand and no result has the dimension `q`"),
    ("a -> a, @a", "        ^^", "a coordinate is an operand"),
    ("a -> a b a", "         ^", "`a` is twice in one result"),
    ("a -> b (a a)", "          ^", "`a` is twice in one axis"),
    ("a -> a (b a)", "       ^^^^^", "`a` is twice in one result"),
    ("a -> (2*a)", "     ^^^^^", "expected `y`, `[c]`, `(h d)` or `1` in a result, got an expression"),
    ("a\n-> a\ta", "       ^", "`a` is twice in one result"),
]


@pytest.mark.parametrize(("text", "carets", "problem"), BAD)
def test_parse_error_points_at_the_offence(text: str, carets: str, problem: str) -> None:
    with pytest.raises(SignatureError) as caught:
        Signature.parse(text)
    headline, shown, pointer, said, remedy = str(caught.value).split("\n")
    assert headline == "cannot read the signature."
    assert shown[2:] == text.replace("\n", " ").replace("\t", " ").rstrip()
    assert pointer[2:] == carets
    assert said[2:] == problem
    assert remedy.startswith("  ") and remedy.endswith(".")


@pytest.mark.parametrize("value", [None, 3, b"i -> i", ["i -> i"], Signature.parse(MATMUL)])
def test_parse_of_what_is_no_string_is_a_signature_error(value: object) -> None:
    with pytest.raises(SignatureError, match=f"got {type(value).__name__}"):
        Signature.parse(value)


def test_parse_refuses_long_text() -> None:
    Signature.parse(" " * 4090 + "a -> a")
    with pytest.raises(SignatureError, match="expected at most 4096 characters, got 4097"):
        Signature.parse(" " * 4091 + "a -> a")


def test_parse_refuses_text_whose_canonical_form_is_too_long_to_read_back() -> None:
    with pytest.raises(SignatureError, match="canonical text"):
        Signature.parse("," * 2000 + "->")


def test_parse_reads_numbers_of_300_digits_and_refuses_more() -> None:
    axis = Signature.parse(f"({'9' * 300}*y) -> y").operands[0].axes[0]
    assert axis.terms[0].coefficient == 10**300 - 1
    with pytest.raises(SignatureError, match="a number of 301 digits"):
        Signature.parse(f"({'9' * 301}*y) -> y")


def test_long_text_is_cropped_around_the_caret() -> None:
    shown, carets = underline("a" * 500 + "!" + "b" * 500, (500, 501)).split("\n")
    assert len(shown) == 96
    assert shown[carets.index("^")] == "!"


def test_show_locates_the_axes_of_a_signature_built_by_hand() -> None:
    parsed = Signature.parse(MATMUL)
    bare = tuple(Operand(tuple(Axis(axis.kind, axis.terms) for axis in t.axes)) for t in parsed.operands)
    by_hand = Signature(bare, bare[:1])
    assert by_hand.show((1, 0), (2, None)) == "i k, k n -> i k\n     ^      ^^^"


def test_show_of_an_expanded_axis_points_at_the_ellipsis() -> None:
    assert Signature.parse("a, ... [c] -> ...").expand(2).show((1, 1)) == "a, ... [c] -> ...\n   ^^^"
