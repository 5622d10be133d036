"""Arrays that a function can read are found on every way that leads to them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from combinators.kernels.reachable import reachable_arrays

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


FUNCTIONS = {
    "default of a keyword": by_keyword,
    "slot by its name as text": functools.partial(by_text, Slotted()),
    "function of a partial": functools.partial(_added),
    "static method": functools.partial(static, Static()),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_an_array_is_found(function: Any) -> None:
    assert any(found.array is TABLE for found in reachable_arrays(function, "f"))
