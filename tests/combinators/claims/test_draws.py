"""What a kernel is asked with: more often where chance could make boxes equal, and never without an end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.claims.boxed import differs
from combinators.claims.cut import Boxed, Parts, parts_of
from combinators.claims.draws import draws
from combinators.declared.drawn import totalled
from combinators.declared.runnable import RaisesError
from combinators.equations.effort import Effort, EffortError
from combinators.index_space.signature import Signature

ROWS = 8


def boxed(function: Callable[..., Any], signature: str, dtype: Any = jnp.float32) -> Boxed:
    read = Signature.parse(signature)

    def at(sizes: dict[str, int]) -> Any:
        structs = [
            jax.ShapeDtypeStruct((sizes["a"],), jnp.int32 if each.coordinate else dtype) for each in read.operands
        ]
        return jax.make_jaxpr(function)(*structs)

    return Boxed(read, {"a": ROWS}, [("a",)], None, list, at)


def asked(function: Callable[..., Any], signature: str = "a -> a", dtype: Any = jnp.float32) -> list[Any]:
    kernel = boxed(function, signature, dtype)
    parts = parts_of(kernel, {"a": ROWS}, {"a": ROWS // 2})
    assert isinstance(parts, Parts)
    return [arrays for arrays, _ in draws(kernel.signature, parts, Effort(1 << 18))]


SELECT = {
    "extrema": (lambda x: x - x.max(), jnp.float32),
    "comparisons": (lambda x: x * (x > 0), jnp.float32),
    "ways": (lambda x: lax.cond(x[0] > 0, lambda u: u, lambda u: -u, x), jnp.float32),
    "inside": (jax.jit(lambda x: jnp.sort(x) + 1), jnp.float32),
    "whole numbers": (lambda x: x + x, jnp.int32),
}


@pytest.mark.parametrize("name", SELECT)
def test_what_selects_is_asked_more_often_and_of_equal_numbers(name: str) -> None:
    function, dtype = SELECT[name]
    found = asked(function, dtype=dtype)
    assert len(found) > 2 * len(asked(lambda x: jnp.sin(x) @ jnp.ones((len(x), len(x))) / 3))
    if dtype == jnp.float32:
        assert any(len(np.unique(x)) < len(x) for (x,) in found)
    else:
        assert any(len(np.unique(x)) == len(x) for (x,) in found)


def test_where_data_choose_what_is_done_it_is_asked_most_often_and_of_parts_of_one_sign() -> None:
    found = asked(SELECT["ways"][0])
    assert len(found) > 1.5 * len(asked(SELECT["extrema"][0]))
    signs = [(np.sign(x[: ROWS // 2]), np.sign(x[ROWS // 2 :])) for (x,) in found]
    assert any((one == one[0]).all() and (other == -one[0]).all() for one, other in signs)


def test_operands_are_of_scales_of_their_own() -> None:
    found = asked(lambda x, y: jnp.maximum(x, y.max()), "a, a -> a")
    ratios = [np.abs(x).mean() / np.abs(y).mean() for x, y in found]
    assert min(ratios) < 1 / 20
    assert max(ratios) > 20


def test_coordinates_stay() -> None:
    for _, places in asked(lambda x, at: jnp.where(x > at, x, 0), "a, @a -> a"):
        np.testing.assert_array_equal(places, np.arange(ROWS))


def test_what_costs_much_is_asked_less_often() -> None:
    kernel = boxed(lambda x: x - x.max(), "a -> a")
    parts = parts_of(kernel, {"a": ROWS}, {"a": ROWS // 2})
    assert parts is not None
    effort, found = Effort(1 << 18), []
    for arrays, _ in draws(kernel.signature, parts, effort):
        found.append(arrays)
        effort.begin(effort.left // 4)
        effort.spend(1 << 14)
    assert len(found) < len(asked(lambda x: x - x.max()))


def test_a_loop_that_some_numbers_keep_going_leaves_something_to_the_others() -> None:
    # Of numbers that are scaled by ten thousand it takes as many turns; of those that are not it is told.
    kernel = boxed(lambda x: lax.while_loop(lambda u: u.sum() < 5, lambda u: u + 1, x), "a -> a")
    assert differs(kernel, {"a": ROWS // 2}, counts=False, settled=lambda *_: False) is True


def test_what_small_numbers_keep_going_is_asked_of_large_ones_too() -> None:
    # It ends of large numbers and of negative ones alone, and of large ones it is no kernel of one cell.
    def added(x: Any) -> Any:
        ended = lax.while_loop(lambda u: (u.sum() > 0) & (u.max() < 1000), lambda u: u * 1.0, x)
        return ended / jnp.where(x.max() > 1000, x.sum(), 1)

    assert differs(boxed(added, "a -> a"), {"a": ROWS // 2}, counts=False, settled=lambda *_: False) is True


def test_where_one_way_to_run_raises_the_next_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []
    runs = Parts.runs

    def first_raises(parts: Parts, way: str, *rest: Any) -> Any:
        ways.append(way)

        def raises(*_: Any) -> Any:
            raise RaisesError

        return raises if len(ways) == 1 else runs(parts, way, *rest)

    monkeypatch.setattr(Parts, "runs", first_raises)
    assert differs(boxed(lambda x: x - x.sum(), "a -> a"), {"a": ROWS // 2}, counts=False, settled=lambda *_: False)
    assert len(ways) == 2 and ways[0] != ways[1]


def test_a_run_takes_no_more_than_its_share() -> None:
    effort = Effort(100)
    effort.begin(10)
    effort.spend(10)
    with pytest.raises(EffortError):
        effort.spend(1)
    assert effort.left == 90
    effort.begin(100)
    effort.spend(90)
    assert effort.left == 0


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("places", [[(0, 5)], [(0, 2)], [(0, 5), (1, 3)], [(0, 2), (1, 1)]], ids=str)
def test_sums_and_means_of_what_is_cut_lie_at_a_number(places: list[tuple[int, int]], dtype: Any) -> None:
    array = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
    cells, axes = math.prod(end for _, end in places), tuple(axis for axis, _ in places)
    for count, reduced in ((cells, np.sum), (1, np.mean)):
        found = totalled(array, 50.0, places, count)
        begin = found[tuple(slice(dict(places).get(axis)) for axis in range(2))]
        np.testing.assert_allclose(reduced(begin, axis=axes), 50.0, rtol=1e-5)
        assert found.dtype == dtype


def test_what_has_no_sum_of_floats_stays() -> None:
    for array, places in ((np.arange(4), [(0, 4)]), (np.ones((0, 2), np.float32), [(0, 0)]), (np.ones(3), [])):
        assert totalled(array, 50.0, places, 1) is array
