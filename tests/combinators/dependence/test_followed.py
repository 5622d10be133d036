"""What is read is followed through the nodes of a recording."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import combinators as tp
from combinators.dependence.followed import readings, source_of
from combinators.dependence.reading import spelt_reading

X = tp.TensorType({"a": 8, "b": 3})
SIN, SUM = tp.Map(jnp.sin), tp.Reduce(lambda x: x.sum(0), "a b -> b", tp.monoids.Sum)


def followed(function: Any, *specs: Any, axis: int = 0, without: tuple[int, ...] = ()) -> list[str]:
    """What the results read of an axis of the first argument, through none of the arguments `without`."""
    found: list[str] = []

    def run(*values: Any) -> Any:
        results = function(*values)
        nodes = values[0].trace.nodes
        refs = [result.ref for result in results]
        listed = readings(nodes, source_of(nodes, values[0].ref), axis, refs, [values[i].ref for i in without])
        for result, read in zip(results, listed, strict=True):
            at = {name: (i, 1, size) for i, (name, size) in enumerate(zip(result.names, result.shape, strict=True))}
            found.append(read if isinstance(read, str) else spelt_reading(read, at) if read else "nothing")
        return results

    tp.trace(run, *specs)
    return found


def test_slices_arithmetic_and_renamings_are_followed() -> None:
    read = followed(lambda x: (x, SIN(x)[2:], x[1:] + x[:-1], SIN(x.rename(a="c"))[::2]), X)
    assert read == ["`a`", "`a+2`", "`a`, `a+1`", "`2*c`"]


def test_another_axis_is_none_of_it() -> None:
    assert followed(lambda x: (x[2:], SUM(x)), X, axis=1) == ["`b`", "`b`"]


def test_what_is_folded_is_read_in_full() -> None:
    assert followed(lambda x: (SUM(x[::4]), SUM(x)), X) == ["`0`, `4`", "`0`, `1`, `2`, ..."]


def test_what_is_not_made_of_a_value_reads_nothing() -> None:
    assert followed(lambda x, y: (y, x + y), X, X) == ["nothing", "`a`"]


def test_nothing_is_followed_through_other_values() -> None:
    def run(without: tuple[int, ...]) -> list[str]:
        return followed(lambda x, y: (y[1:], y[1:] + x[:-1]), X, X, axis=0, without=without)

    assert run(()) == run((1,)) == ["nothing", "`a`"]


def test_why_it_cannot_be_told() -> None:
    scan, whole = tp.Scan(tp.monoids.Sum, "a b -> a b", "a"), tp.Map(lambda x: x, "[a] b -> [a] b", name="all")
    read = followed(lambda x: (scan(x), SIN(whole(x)), tp.iterate(SIN, 2)(x), scan(x)), X)
    assert read == ["`scan` runs along `a`", "`all` takes `[a]` whole", "they go through the loop `iterate`", read[0]]
    along = tp.Scan(tp.monoids.Sum, "a b -> a b", "b")
    assert followed(lambda x: (along(x),), X) == ["`a`"]
