"""Any text is a signature or a SignatureError, and a signature prints what it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from combinators.errors import SignatureError
from combinators.index_space.axis import Axis, Term
from combinators.index_space.extent import axis_extent
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.index_space.sizes import solve_sizes

NAMES = ("a", "b", "dy", "_x1", "ñ", "if", "...0", "...3")
PIECES = (*NAMES, "->", "...", ",", "(", ")", "[", "]", "+", "-", "*", "@", "1", "0", "17", " ", "  ", "\n")


def parse_or_refuse(text: str) -> Signature | None:
    try:
        return Signature.parse(text)
    except SignatureError as error:
        lines = str(error).split("\n")
        assert len(lines) >= 3 and lines[-1].endswith(".")  # a headline, what was wrong, a remedy
        return None


@given(st.text(max_size=40))
@example("\ud800 -> a")
@example("\u2028a -> a\x00")
@example("\u0345 -> a")
@example("(" * 4000)
@example("٣ -> a")
def test_any_text_is_a_signature_or_refused(text: str) -> None:
    signature = parse_or_refuse(text)
    assert signature is None or Signature.parse(str(signature)) == signature


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
@settings(max_examples=300)
def test_any_text_of_the_right_pieces_is_a_signature_or_refused(text: str) -> None:
    signature = parse_or_refuse(text)
    if signature is None:
        return
    assert Signature.parse(str(signature)) == signature
    assert str(Signature.parse(str(signature))) == str(signature)
    by_role = (signature.map_dims, signature.fold_dims, signature.whole_dims, signature.generated_dims)
    assert sorted(name for names in by_role for name in names) == sorted(signature.dims)


@st.composite
def axes(draw: st.DrawFn, names: list[str], *, window: bool) -> Axis:
    """One axis that takes its dimensions off `names`; a result takes no expressions."""
    kind = draw(st.sampled_from(["bare", "one", "composite", "affine"] if window else ["bare", "one", "composite"]))
    count = 1 if kind == "bare" else draw(st.integers(1, 3))
    taken, names[:] = names[:count], names[count:]
    if kind == "one" or not taken:
        return Axis("one")
    if kind == "affine":
        coefficient = st.integers(-(2**70), 2**70).filter(bool)
        terms = tuple(Term(name, draw(coefficient)) for name in taken)
        return Axis("affine", terms, draw(st.integers(-(2**70), 2**70)))
    return Axis("composite" if len(taken) > 1 else "affine", tuple(Term(name) for name in taken))


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    def tensor(*, window: bool, ellipsis: bool) -> Operand:
        names = list(draw(st.permutations(["a", "b", "dy", "x_1", "ñ"])))
        count = draw(st.integers(0, 3))
        lead = draw(st.integers(0, count)) if ellipsis else 0
        return Operand(tuple(draw(axes(names, window=window)) for _ in range(count)), ellipsis, lead=lead)

    ellipsis = draw(st.booleans())
    operands = [tensor(window=True, ellipsis=ellipsis) for _ in range(draw(st.integers(1, 3)))]
    results = [tensor(window=False, ellipsis=ellipsis) for _ in range(draw(st.integers(1, 2)))]
    used = sorted({name for operand in operands for name in operand.names})
    if used and draw(st.booleans()):
        operands.append(Operand(coordinate=draw(st.sampled_from(used))))
    whole = draw(st.sets(st.sampled_from(used))) if used else set[str]()
    return Signature(tuple(_make_whole(o, whole) for o in operands), tuple(_make_whole(r, whole) for r in results))


def _make_whole(tensor: Operand, whole: set[str]) -> Operand:
    terms = [tuple(replace(term, whole=term.name in whole) for term in axis.terms) for axis in tensor.axes]
    return replace(tensor, axes=tuple(replace(a, terms=t) for a, t in zip(tensor.axes, terms, strict=True)))


@given(signatures())
def test_signature_reads_back_from_its_text(signature: Signature) -> None:
    assert Signature.parse(str(signature)) == signature


@given(signatures(), st.integers(0, 3))
def test_expanded_signature_reads_back_from_its_text(signature: Signature, rank: int) -> None:
    expanded = signature.expand(rank)
    assert Signature.parse(str(expanded)) == expanded
    ranks = [None if o.coordinate is not None else len(o.axes) for o in expanded.operands]
    assert signature.ellipsis_rank(ranks) == (rank if signature.has_ellipsis else 0)


@given(
    coefficients=st.lists(st.integers(-4, 4).filter(bool), min_size=2, max_size=3),
    extents=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    n=st.integers(0, 30),
    slack=st.integers(0, 3),
)
def test_valid_size_fits_and_one_more_does_not(coefficients: list[int], extents: list[int], n: int, slack: int) -> None:
    names = ["u", "v"][: len(coefficients) - 1]
    sizes = dict(zip(names, extents, strict=False))
    # The offset moves the smallest read of the first cell to `slack`, so that it exists.
    offset = slack - sum(min(0, c * (sizes[name] - 1)) for c, name in zip(coefficients[1:], names, strict=True))
    terms = tuple(Term(name, c) for name, c in zip(["y", *names], coefficients, strict=True))
    axis = Axis("affine", terms, offset)
    windows = [Operand((Axis("affine", (Term(name),)),)) for name in names]
    result = Operand((Axis("affine", (Term("y"),)),))
    if axis.is_bare:
        return
    signature = Signature((Operand((axis,)), *windows), (result,))
    size = solve_sizes(signature, [(n,), *((sizes[name],) for name in names)])["y"]

    def does_fit(size: int) -> bool:
        grids = np.meshgrid(*(np.arange(k) for k in (size, *sizes.values())), indexing="ij")
        reads = offset + sum(c * grid for c, grid in zip(coefficients, grids, strict=True))
        assert isinstance(reads, np.ndarray)
        if reads.size:
            assert axis_extent(axis, {"y": size, **sizes}) == (reads.min(), reads.max() + 1)
        return bool(((reads >= 0) & (reads < n)).all())

    assert does_fit(size)
    assert not does_fit(size + 1)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.data())
def test_composite_axis_gives_its_missing_factor(factors: list[int], data: st.DataObject) -> None:
    names = [f"d{i}" for i in range(len(factors))]
    missing = data.draw(st.sampled_from(names))
    sizes = dict(zip(names, factors, strict=True))
    given_sizes = {name: size for name, size in sizes.items() if name != missing}
    signature = Signature.parse(f"({' '.join(names)}) -> {' '.join(names)}")
    assert solve_sizes(signature, [(math.prod(factors),)], given=given_sizes) == sizes
