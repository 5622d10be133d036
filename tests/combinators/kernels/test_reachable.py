"""Arrays that a function can read are found on every way that leads to them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from combinators.kernels import reachable
from combinators.kernels.reachable import Reached, reachable_arrays, reached

TABLE = np.arange(3.0)


class Slotted:
    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table = TABLE


class Static:
    @staticmethod
    def read(x: Any) -> Any:
        return x + TABLE


def by_keyword(x: Any, *, table: Any = TABLE) -> Any:
    return x + table


def by_text(held: Any, x: Any) -> Any:
    return x + getattr(held, "table")  # noqa: B009


def _added(x: Any) -> Any:
    return x + TABLE


def static(holder: Any, x: Any) -> Any:
    return holder.read(x)


class Silent(Mapping[str, Any]):
    """Does not say what it holds, and gives it by name."""

    def __init__(self) -> None:
        self.table = TABLE

    def __getitem__(self, key: str) -> Any:
        return self.table

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("not now")

    def __len__(self) -> int:
        return 1


class Guarded:
    """Gives its slot to its own method alone."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table = TABLE

    def __getattribute__(self, name: str) -> Any:
        if name == "table":
            raise RuntimeError("private")
        return object.__getattribute__(self, name)

    def __call__(self, x: Any) -> Any:
        return x + Guarded.table.__get__(self)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def of_mapping(mapping: Any, x: Any) -> Any:
    return x + mapping["table"]


FUNCTIONS = {
    "default of a keyword": by_keyword,
    "slot by its name as text": functools.partial(by_text, Slotted()),
    "function of a partial": functools.partial(_added),
    "static method": functools.partial(static, Static()),
    "mapping that does not say what it holds": functools.partial(of_mapping, Silent()),
    "slot that only a method reads": Guarded(),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_an_array_is_found(function: Any) -> None:
    assert any(found.array is TABLE for found in reachable_arrays(function, "f"))


def test_what_pytest_puts_into_an_assertion_is_not_looked_into() -> None:
    def checked(x: Any) -> Any:
        assert x.ndim == 1
        return x

    # Under a name that nobody can write; behind it lie all of pytest and thousands of functions.
    assert any(not name.isidentifier() for name in checked.__code__.co_names)
    assert len(reached(checked, "checked").reads) < 10


def test_walks_that_end_early_are_not_gone_again_for_each_name_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through flax or dask ten and more of 20,000 objects were: each met other names than the one before."""
    walks: list[frozenset[str]] = []

    class Endless:
        def __init__(self, known: frozenset[str]) -> None:
            assert len(walks) < 5, "walks go on"
            walks.append(known)
            self.names = {f"name_{len(walks)}"}

        def run(self, function: object, name: str) -> Reached:
            return Reached((), is_whole=len(walks) == 1)

    monkeypatch.setattr(reachable, "_Walk", Endless)
    assert not reached(_added, "f").is_whole
    assert walks == [frozenset(), {"name_1"}, {"name_1", "name_2"}]


def test_an_empty_slot_hides_nothing() -> None:
    held = Slotted()
    del held.table
    assert not reachable_arrays(functools.partial(by_text, held), "f")
