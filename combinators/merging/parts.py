"""Values that lie side by side: in a tuple, or by name in a dictionary."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from combinators.frozen import dataclass


def by_part(apply: Callable[..., Any], parts: Sequence[Any], keys: Sequence[str] | None, *values: Any) -> Any:
    """Apply something to every part and what lies at its place.

    Args:
      apply: called with a part and one value of each of `values`.
      parts: what is applied, one for each place.
      keys: the names of the places where the values are dictionaries; None where they are tuples.
      values: tuples or dictionaries with one value for each place.

    Returns:
      A tuple or a dictionary with one result for each place.
    """
    where: Sequence[Any] = range(len(parts)) if keys is None else keys
    made = [apply(part, *(value[key] for value in values)) for part, key in zip(parts, where, strict=True)]
    return tuple(made) if keys is None else dict(zip(keys, made, strict=True))


class Wrapping(ABC):
    """A merge that hands states, or parts of them, on to merges that it holds."""

    @abstractmethod
    def each(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """The same of the merges that `change` gives of those that it holds."""


@final
@dataclass(frozen=True)
class SideBySide(Wrapping):
    """Apply the i-th function to the i-th parts of its arguments.

    Args:
      functions: one a part.
      keys: names of the parts where the arguments are dictionaries; None where they are tuples.
    """

    functions: tuple[Callable[..., Any], ...]
    keys: tuple[str, ...] | None

    def __call__(self, *args: Any) -> Any:
        """Return a tuple or a dictionary with one result a part."""
        return by_part(operator.call, self.functions, self.keys, *args)

    def each(self, change: Callable[..., Any]) -> SideBySide:
        """The same of functions that are changed, each by itself."""
        return SideBySide(tuple(map(change, self.functions)), self.keys)
