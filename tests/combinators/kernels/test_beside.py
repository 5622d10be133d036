"""Objects that hold more than their items or fields: a kernel is another one where that is other."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.settled import changeable, may_change

X = np.ones(4, np.float32)
Make = Callable[[float], Any]


class Listed(list[int]):
    def __call__(self, x: Any) -> Any:
        return x * self.scale  # type: ignore[attr-defined]


class Mapped(dict[str, int]):
    def __call__(self, x: Any) -> Any:
        return x * self.scale  # type: ignore[attr-defined]


class Fixed(tuple[int, ...]):
    pass


class Frozen(frozenset[int]):
    pass


@dataclasses.dataclass(frozen=True)
class Begun:
    given: dataclasses.InitVar[float]
    inner: Callable[[Any], Any] = jnp.positive

    def __post_init__(self, given: float) -> None:
        object.__setattr__(self, "scale", given)

    def __call__(self, x: Any) -> Any:
        return self.inner(x) * self.scale  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Written:
    inner: Callable[[Any], Any]

    def __call__(self, x: Any) -> Any:
        return self.inner(x) * self.scale  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Alone(Written):
    def __copy__(self) -> Alone:
        return self


@dataclasses.dataclass(frozen=True)
class Known:
    scale: float

    @functools.cached_property
    def drawn(self) -> float:
        return float(np.random.default_rng().random())


def with_scale(held: Any, scale: float) -> Any:
    object.__setattr__(held, "scale", scale)
    return held


def reading(held: Any) -> Callable[[Any], Any]:
    return lambda x: x * held.scale


def local(factor: float = 1.0) -> Callable[[Any], Any]:
    return lambda x: x * factor


def executed(scale: float) -> Any:
    names: dict[str, Any] = {}
    exec(f"class Scaled:\n  def __call__(self, x): return x * {scale}", names)
    return names["Scaled"]()


def written_by_jax(scale: float) -> Callable[[Any], Any]:
    def act(x: Any) -> Any:
        return x * act._fun  # type: ignore[attr-defined]

    act._fun = scale  # type: ignore[attr-defined]
    return act


MAKERS: dict[str, Make] = {
    "a list that is called": lambda scale: with_scale(Listed([1]), scale),
    "a dict that is called": lambda scale: with_scale(Mapped(a=1), scale),
    "a tuple in a closure": lambda scale: reading(with_scale(Fixed((1,)), scale)),
    "a frozen set in a closure": lambda scale: reading(with_scale(Frozen((1,)), scale)),
    "a list in a partial": lambda scale: functools.partial(lambda held, x: x * held.scale, with_scale(Listed(), scale)),
    "what a dict makes": lambda scale: (lambda held: lambda x: x * held["?"])(collections.defaultdict(lambda: scale)),
    "what a dataclass is begun with": Begun,
    "a closure beside it": lambda scale: Begun(scale, local()),
    "what was written onto a dataclass": lambda scale: with_scale(Written(local()), scale),
    "a class of a text": executed,
    "a name that JAX has as well": written_by_jax,
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_an_object_holds_tells_it(name: str) -> None:
    make = MAKERS[name]
    assert fingerprint(make(2.0)) == fingerprint(make(2.0)) != fingerprint(make(3.0))
    assert [float(tp.Map(make(scale), "n -> n")(X)[0]) for scale in (2.0, 3.0)] == [2.0, 3.0]


@pytest.mark.parametrize("name", [name for name in MAKERS if "written onto" in name or "called" in name])
def test_what_is_written_later_counts(name: str) -> None:
    kernel = MAKERS[name](2.0)
    assert may_change(kernel)
    assert float(tp.Map(kernel, "n -> n")(X)[0]) == 2
    with_scale(kernel, 3.0)
    assert float(tp.Map(kernel, "n -> n")(X)[0]) == 3


def test_what_is_held_there_and_may_change_tells_two_apart() -> None:
    held = [[1.0], [1.0]]
    one, other, again = (with_scale(Written(jnp.sin), each) for each in (*held, held[0]))
    assert fingerprint(one) == fingerprint(other)
    assert changeable(one) == changeable(again) != changeable(other)


def test_what_has_no_structure_is_told_by_its_class() -> None:
    for make in (lambda: Listed([1]), lambda: Written(jnp.sin)):
        one, other = make(), make()
        for held in (one, other):
            object.__setattr__(held, "lock", threading.Lock())
        assert fingerprint(one) == fingerprint(other)
        assert tp.trace(tp.Map(reading(with_scale(one, 2.0)), "n -> n"), X).key


def test_an_object_that_says_of_a_copy_that_it_is_itself_stays_as_it_is() -> None:
    kernel = with_scale(Alone(local(3.0)), 2.0)
    before = kernel.inner
    assert float(tp.Map(kernel, "n -> n")(X)[0]) == 6
    assert kernel.inner is before


def test_what_a_property_keeps_does_not() -> None:
    known = Known(2.0)
    before = fingerprint(known)
    assert known.drawn < 1
    assert fingerprint(known) == before
