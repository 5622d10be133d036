"""What cells that are cut choose together, and whether a box was ever seen to choose otherwise than the whole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.choosing.choices import Choices, is_other
from combinators.choosing.chosen import Cells
from combinators.declared.flow import Flow
from combinators.equations.evaluate import evaluator

WHOLE, BOX = 8, 4
CUT, KEPT = frozenset("a"), frozenset[str]()


def asked(function: Any, operands: list[Any], *draws: list[Any], folds: bool = False) -> Choices:
    """What a function chooses of arrays, whole and in a first and a last box."""

    def at(size: int) -> Any:
        structs = [jax.ShapeDtypeStruct((size,) if dims else (), jnp.float32) for dims in operands]
        return jax.make_jaxpr(function)(*structs)

    programs = {(size,): at(size) for size in (WHOLE, BOX)}
    made_of = [Cells(dims, Flow(("a",) if dims else ())) for dims in operands]
    choices = Choices({sizes: (program, made_of) for sizes, program in programs.items()}, ["a"], CUT if folds else KEPT)
    runs = {size: evaluator(program, None, choices.watch) for (size,), program in programs.items()}
    for arrays in draws:
        parts = [[array[low : low + BOX] if np.ndim(array) else array for array in arrays] for low in (0, WHOLE - BOX)]
        for size, block in ((WHOLE, arrays), (BOX, parts[0]), (BOX, parts[1])):
            choices.begin()
            runs[size](block)
        chosen, *boxes = choices.taken()
        choices.compare(chosen, chosen, boxes)
    return choices


def numbers(*cells: float) -> list[Any]:
    return [np.asarray(cells, np.float32)]


POSITIVE, NEGATIVE = numbers(*range(1, 9)), numbers(*range(-8, 0))
BOTH, OTHERS = numbers(*range(-4, 4)), numbers(*range(4, -4, -1))


def flipped(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda u: u, lambda u: -u, x)


def until_large(x: Any) -> Any:
    return lax.while_loop(lambda u: u.sum() < 5, lambda u: u + 1, x)


def inside(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, u: flipped(u), x)


TOGETHER = {"a condition": flipped, "a loop": until_large, "inside of one": inside, "called": jax.jit(flipped)}
TELLING = {name: function for name, function in TOGETHER.items() if function is not until_large}


@pytest.mark.parametrize("name", TOGETHER)
def test_of_what_all_boxes_choose_as_the_whole_does_nothing_is_told(name: str) -> None:
    assert not asked(TOGETHER[name], [CUT], POSITIVE, POSITIVE, POSITIVE).are_told


@pytest.mark.parametrize("name", TELLING)
def test_a_box_that_chooses_otherwise_tells_if_it_does_so_often(name: str) -> None:
    assert not asked(TOGETHER[name], [CUT], BOTH, OTHERS).are_told
    assert asked(TOGETHER[name], [CUT], BOTH, OTHERS, BOTH, OTHERS).are_told


def found_together(x: Any) -> Any:
    """The root of each, until all are found."""
    return lax.while_loop(
        lambda u: (abs(u * u / abs(x) - 1) > 1e-3).any(), lambda u: 0.5 * (u + abs(x) / u), 1 + abs(x)
    )


def turned_over(x: Any) -> Any:
    """Two turns come to what none does."""
    return lax.while_loop(lambda held: (x.sum() > 0) & (held[1] < 2), lambda held: (1 - held[0], held[1] + 1), (x, 0))[
        0
    ]


def test_a_loop_tells_where_a_turn_more_changes_little() -> None:
    # One row that takes many turns.
    draws = [numbers(*[2.0] * 7, large) for large in (1e3, 1e4, 1e5)]
    assert asked(found_together, [CUT], *draws).are_told
    assert not asked(found_together, [CUT], POSITIVE, POSITIVE).are_told
    for function in (until_large, turned_over):
        assert not asked(function, [CUT], *[BOTH, OTHERS] * 4).are_told


def handed_on(x: Any) -> Any:
    """What is cut comes to the choice in the third turn alone."""

    def step(carried: Any, _: Any) -> Any:
        one, other, last = carried
        return (other, last, lax.cond(one > 0, lambda: last, lambda: -last)), None

    return lax.scan(step, (jnp.float32(1), jnp.float32(1), x.sum()), None, length=5)[0][2]


def test_a_loop_hands_what_is_cut_on() -> None:
    assert not asked(handed_on, [CUT], POSITIVE, POSITIVE, POSITIVE).are_told


@jax.vmap
def each_until_large(v: Any) -> Any:
    return lax.while_loop(lambda u: u < 5, lambda u: u + 1, v)


def all_until_large(x: Any) -> Any:
    return lax.while_loop(lambda u: (u < 5).any(), lambda u: jnp.where(u < 5, u + 1, u), x)


def turned(x: Any, often: Any) -> Any:
    return lax.while_loop(lambda held: held[1] < often, lambda held: (held[0] + 1, held[1] + 1), (x, jnp.float32(0)))[0]


APART: dict[str, tuple[Any, list[Any]]] = {
    "each row by itself": (each_until_large, [CUT]),
    "a turn more changes nothing": (all_until_large, [CUT]),
    "by a number that is not cut": (lambda x, flag: lax.cond(flag > 0, lambda u: u, lambda u: -u, x), [CUT, KEPT]),
    "so often": (turned, [CUT, KEPT]),
    "of nothing": (lambda x: lax.cond(jnp.zeros(()) > 0, lambda u: u, lambda u: -u, x), [CUT]),
    "by a choice that the program says": (lambda x: lax.cond(True, lambda u: u, lambda u: -u, x), [CUT]),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_not_chosen_together_needs_no_numbers(name: str) -> None:
    function, operands = APART[name]
    assert asked(function, operands, [*POSITIVE, np.float32(2)][: len(operands)]).are_told


def test_rows_that_are_chosen_for_together_are_not_apart_along_another_axis() -> None:
    def columns(x: Any) -> Any:
        return jax.vmap(until_large, 1, 1)(jnp.stack([x, x], 1))

    assert not asked(columns, [CUT], POSITIVE, POSITIVE, POSITIVE).are_told


def test_what_nobody_could_watch_is_not_told() -> None:
    # Nothing is run, as where a program is compiled.
    assert not asked(flipped, [CUT]).are_told
    assert asked(turned, [CUT, KEPT]).are_told


def test_a_program_that_is_called_twice_chooses_by_the_cells_of_both_calls() -> None:
    called = jax.jit(each_until_large)

    def at(rows: int, cols: int) -> Any:
        return jax.make_jaxpr(lambda x, y: called(x.sum(1)) + called(y))(np.ones((rows, cols)), np.ones(rows))

    def choices(*operands: frozenset[str]) -> Choices:
        made_of = [
            Cells(dims, Flow(tuple(name if name in dims else None for name in axes)))
            for dims, axes in zip(operands, ("ab", "a"), strict=True)
        ]
        return Choices({sizes: (at(*sizes), made_of) for sizes in ((8, 6), (4, 3))}, ["a", "b"], KEPT)

    assert choices(CUT, CUT).are_told
    # Each row of both, and of one all columns together.
    assert not choices(CUT | {"b"}, CUT).are_told


def test_numbers_of_which_a_loop_tells_nothing_do_not_spoil_others() -> None:
    settled = [numbers(*[2.0] * 7, large) for large in (1e3, 1e4, 1e5)]
    # Of these a turn more halves what has been found.
    spoiled = numbers(*[1e-30] * 8)
    choices = asked(found_together, [CUT], *settled)
    assert choices.are_told
    assert asked(found_together, [CUT], spoiled, *settled).are_told


def in_turn(function: Any) -> Any:
    return lambda x: lax.map(lambda v: function(x, v), x)


def test_a_loop_over_cells_chooses_for_each_in_its_turn() -> None:
    assert asked(lambda x: lax.map(until_large, x), [CUT], POSITIVE).are_told
    # A cell that all of them have entered is none by itself.
    assert not asked(lambda x: lax.map(until_large, x - x.sum()), [CUT], POSITIVE, POSITIVE, POSITIVE).are_told


def test_how_often_is_chosen_tells_nothing() -> None:
    together = in_turn(lambda x, v: lax.cond(x.sum() > 0, lambda: v, lambda: -v))
    assert not asked(together, [CUT], POSITIVE, POSITIVE, POSITIVE).are_told
    by_itself = in_turn(lambda x, v: lax.cond(v > 0, lambda: v, lambda: -v))
    assert asked(by_itself, [CUT], BOTH, OTHERS, BOTH).are_told


def test_programs_that_choose_in_other_places_are_compared_too() -> None:
    def by_size(x: Any) -> Any:
        return flipped(flipped(x)) if len(x) > BOX else flipped(x)

    assert not asked(by_size, [CUT], POSITIVE, POSITIVE, POSITIVE).are_told
    assert not asked(by_size, [CUT], NEGATIVE, NEGATIVE, NEGATIVE).are_told
    assert asked(by_size, [CUT], BOTH, OTHERS, BOTH).are_told


def total(x: Any) -> Any:
    return lax.scan(lambda c, v: (c + v, None), 0.0, x)[0]


FOLDS: dict[str, Any] = {
    "of what is folded": lambda x: jnp.where(x.max() > 0, x.max(), -x.max()),
    "spread over cells again": lambda x: jnp.where(jnp.broadcast_to(x.max(), x.shape) > 0, x, -x).max(),
    "of one cell": lambda x: jnp.where(x[0] > 0, x.max(), -x.max()),
    "in a loop": lambda x: lax.scan(lambda c, v: (jnp.where(c > 0, c, jnp.maximum(c, v)), None), x.max() - 1, x)[0],
    "of what a loop has folded": lambda x: jnp.where(total(x) > 0, total(x), -total(x)),
    "in the loop that folds": lambda x: lax.scan(lambda c, v: (jnp.where(c + v > 0, c + v, -c), None), 0.0, x)[0],
    "by what it multiplies": lambda x: x.max() * (x.sum() > 0),
    "by a sign": lambda x: x.max() * jnp.sign(x.max()),
    "rounded": lambda x: jnp.round(jax.nn.sigmoid(x.max())) + x.max(),
    "clipped": lambda x: jnp.clip(x.max(), 0, 1),
    "by whole numbers": lambda x: jnp.array([1.0, 2.0])[jnp.clip(x.max(), 0, 1).astype(int)],
    "by a place": lambda x: jnp.argmax(jnp.stack([x.max(), 0.5])),
}
BY_CELLS: dict[str, Any] = {
    "of each cell": lambda x: jnp.where(x > 0, x, -x).sum(),
    "of each in its turn": lambda x: lax.scan(lambda c, v: (c + jnp.where(v > 0, v, 0), None), 0.0, x)[0],
    "of places, which are none below zero": lambda x: x[jnp.argmax(x)],
    "of places along rows": lambda x: jnp.take_along_axis(x[None], jnp.argmax(x)[None, None], 1)[0, 0],
    "of places in order": lambda x: x[jnp.argsort(x)][-1],
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_that_compares_what_it_has_folded_chooses(name: str) -> None:
    assert not asked(FOLDS[name], [CUT], POSITIVE, POSITIVE, POSITIVE, folds=True).are_told
    assert asked(FOLDS[name], [CUT], *[BOTH, OTHERS] * 3, folds=True).are_told


@pytest.mark.parametrize("name", FOLDS)
def test_a_map_that_compares_what_it_has_mixed_chooses_as_well(name: str) -> None:
    assert not asked(FOLDS[name], [CUT], POSITIVE, POSITIVE, POSITIVE).are_told


@pytest.mark.parametrize("name", BY_CELLS)
def test_a_fold_that_chooses_for_each_cell_needs_no_numbers(name: str) -> None:
    assert asked(BY_CELLS[name], [CUT], POSITIVE, folds=True).are_told


def test_what_no_result_needs_is_no_choice() -> None:
    assert asked(lambda x: (jnp.sign(x.sum()), x.sum())[1], [CUT], POSITIVE, folds=True).are_told


def test_of_fewer_rows_another_choice_is_one_that_no_row_has() -> None:
    whole = np.asarray([True, False, True])
    assert not is_other(whole[:1], whole, maps=True) and not is_other(whole[:2], whole, maps=True)
    assert is_other(np.asarray([False]), np.asarray([True, True]), maps=True)
    assert is_other(whole[::-1] ^ True, whole, maps=True)


def test_of_fewer_cells_that_are_folded_one_that_some_lack_is_another() -> None:
    whole = np.asarray([True, False, True])
    assert is_other(whole[:1], whole, maps=False) and not is_other(whole[:2], whole, maps=False)


MAPS: dict[str, Any] = {
    "by a total": lambda x: x + jax.nn.relu(total(x) - 40),
    "clipped": lambda x: x + jnp.clip(total(x), -1e6, 1e6),
    "of what came so far": lambda x: jax.nn.relu(lax.scan(lambda c, v: (c + v, c + v), 0.0, x)[1]),
}
MAPS_BY_CELLS: dict[str, Any] = {
    "of each in its turn": lambda x: jax.nn.relu(lax.map(lambda v: 2 * v, x)),
    "of as many as there are cells": lambda x: jax.nn.relu(x[jnp.arange(len(x))]),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_chooses_by_what_a_loop_has_made_of_all_cells(name: str) -> None:
    assert not asked(MAPS[name], [CUT], POSITIVE, NEGATIVE, POSITIVE).are_told


@pytest.mark.parametrize("name", MAPS_BY_CELLS)
def test_a_map_that_compares_each_cell_needs_no_numbers(name: str) -> None:
    assert asked(MAPS_BY_CELLS[name], [CUT], POSITIVE).are_told


TRUE, FALSE = ({0: [(np.array(each), 0.0)]} for each in (True, False))


def test_what_kinks_tell_of_large_numbers_steps_do_not() -> None:
    def told(function: Any) -> bool:
        choices = asked(function, [CUT], POSITIVE, folds=True)
        for _ in range(3):
            choices.compare(TRUE, TRUE, [FALSE], ordinary=False)
        return choices.are_told

    assert told(lambda x: lax.clamp(-2.0, x.max(), 2.0))
    assert not told(lambda x: jnp.where(x.max() > 0, x.max(), 1 - x.max()))
