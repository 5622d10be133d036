"""What is put together and taken apart otherwise is followed cell by cell, and held against what a signature says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp

flat = tp.rearrange("a b -> (a b)")
by_three = tp.rearrange("(q r) -> q r", q=3)
rolled = tp.Map(lambda v: v, "(y+1) -> y", boundary="periodic")
shifted = tp.Map(lambda v: v, "(y+1) -> y", boundary="zero")
LINE, TABLE = tp.TensorType({"p": 7}), tp.TensorType({"p": 2, "q": 3})

FALSE: dict[str, tuple[str, Callable[[Any], Any], tp.TensorType]] = {
    "a repetition called a tile": ("a -> (r a)", tp.rearrange("a -> (a r)", r=2), LINE),
    "turned round": ("a b -> (b a)", lambda v: flat(v)[::-1], TABLE),
    "a reshape": ("(a b) c -> (b c) a", lambda v: by_three(flat(v)), TABLE),
    "a boundary that answers within": ("(y+3) -> y", lambda v: rolled(v[2:6]), LINE),
    "a boundary that answers before the end": ("(y+1) -> y", lambda v: shifted(v[:6]), LINE),
}
TRUE: dict[str, tuple[str, Callable[[Any], Any], tp.TensorType]] = {
    "a tile": ("a -> (r a)", tp.rearrange("a -> (r a)", r=2), LINE),
    "a repetition": ("a -> (a r)", tp.rearrange("a -> (a r)", r=2), LINE),
    "turned round": ("a b -> (a b)", lambda v: flat(v)[::-1], TABLE),
    "turned round, in a loss": ("a b -> (a b)", lambda v: tp.Map(lambda x: x * 2)(flat(v)[::-1][::-1]), TABLE),
    "one of two ways": ("a b -> (a b)", lambda v: flat(v)[::-1] + tp.rearrange("a b -> (b a)")(v)[::-1], TABLE),
    "a boundary at the end": ("(y+1) -> y", rolled, LINE),
    "a boundary that need not answer": ("(y+3) -> y", lambda v: v[3:], LINE),
}


def is_taken(signature: str, function: Callable[[Any], Any], kind: tp.TensorType) -> bool:
    try:
        tp.trace(tp.program(signature)(function), kind)
    except tp.SignatureError:
        return False
    return True


@pytest.mark.parametrize("name", FALSE)
def test_what_is_false_is_refused(name: str) -> None:
    assert not is_taken(*FALSE[name])


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_is_taken(name: str) -> None:
    assert is_taken(*TRUE[name])


def step(source: np.random.Generator, size: int) -> Callable[[Any], Any]:
    """Something done to a line of so many cells."""
    kind = source.integers(3)
    if kind == 0:
        return lambda v: v[::-1]
    if kind == 1:
        return lambda v: rolled(v)
    parts = int(source.choice([n for n in range(1, size + 1) if size % n == 0]))
    into, back = (
        tp.rearrange("(q r) -> q r", q=parts),
        tp.rearrange("q r -> (q r)" if source.integers(2) else "q r -> (r q)"),
    )
    return lambda v: back(into(v))


@pytest.mark.parametrize("seed", range(40))
def test_of_three_dimensions_each_is_up_to_its_own(seed: int) -> None:
    source = np.random.default_rng(seed)
    sizes, order = source.integers(2, 4, 3), source.permutation(3)
    line, kind = tp.rearrange("a b c -> (a b c)"), tp.TensorType(dict(zip("pqr", map(int, sizes), strict=True)))
    said = " ".join("abc"[place] for place in order)
    # What lies otherwise than is said has some index that is up to another one.
    numbers = np.arange(sizes.prod()).reshape(sizes)
    table = numbers[::-1, ::-1, ::-1].reshape(sizes[order]).transpose(np.argsort(order))
    own = np.unravel_index(table, sizes)
    holds = all(
        (each == np.moveaxis(each, at, 0)[:, :1, :1].reshape(np.where(np.arange(3) == at, sizes, 1))).all()
        for at, each in enumerate(own)
    )
    assert is_taken(f"a b c -> ({said})", lambda v: line(v)[::-1], kind) == holds


@pytest.mark.parametrize("seed", range(60))
def test_it_is_taken_where_the_indices_of_the_cells_are_up_to_their_own(seed: int) -> None:
    source = np.random.default_rng(seed)
    sizes = source.integers(2, 5, 2)
    steps = [step(source, int(sizes.prod())) for _ in range(source.integers(1, 4))]

    def chain(v: Any) -> Any:
        line = flat(v)
        for each in steps:
            line = each(line)
        return line

    numbers = np.arange(sizes.prod(), dtype=np.float32).reshape(sizes)
    read = np.asarray(tp.program(chain)(numbers), int)
    for signature, order in (("a b -> (a b)", (0, 1)), ("a b -> (b a)", (1, 0))):
        table = read.reshape(sizes[list(order)]).transpose(np.argsort(order))
        own = [np.unravel_index(table, sizes)[axis] for axis in (0, 1)]
        holds = (own[0] == own[0][:, :1]).all() and (own[1] == own[1][:1]).all()
        assert is_taken(signature, chain, tp.TensorType(dict(zip("pq", map(int, sizes), strict=True)))) == holds


def test_a_loop_is_followed_by_nobody() -> None:
    double = tp.iterate(tp.Map(lambda v: v * 2), 3)
    assert is_taken("a b -> (b a)", lambda v: double(flat(v)), TABLE)
