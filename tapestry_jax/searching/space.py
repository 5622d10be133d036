"""The space of choices: what a search may write into a plan, one variable for each thing that is chosen by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Ring, Striped

Choice = tuple[int, ...]
"""A candidate: for each variable of a space the position of its value. Zeros ask for nothing but what is fixed."""


@dataclass(frozen=True)
class Variable:
    """One thing to choose.

    Attributes:
      kind: `axes` (mesh axes of a dimension), `ring`, `chunks`, `halo` and `stripes` of one; `except` (mesh axes of a
        dimension at the operations of one class); `stored` (mesh axes over which parameters are stored); `remat`.
      name: of the dimension; of the scope for `remat`; empty for `stored`.
      paths: for `except` the operations of the class.
      values: what may be chosen. The first asks for nothing.
      finer: how many of the last values stand between others: they are looked at beside what was chosen already.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]
    finer: int = 0

    @property
    def coarse(self) -> int:
        """How many values are tried from wherever a search is."""
        return len(self.values) - self.finer

    def others(self, at: int) -> list[int]:
        """The values to go on to from one of them: all but the finer ones, and of those the next above and below."""
        found = [value for value in range(self.coarse) if value != at]
        if not self.finer or not at:
            return found
        ordered = sorted(range(1, len(self.values)), key=lambda value: self.values[value])
        place = ordered.index(at)
        return found + [each for each in (*ordered[place + 1 :][:1], *ordered[:place][-1:]) if each >= self.coarse]

    def __str__(self) -> str:
        where = f" at {self.paths[0]}" + (f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else "")
        return f"{self.kind} of {self.name or 'parameters'}{where if self.paths else ''}"


@dataclass(frozen=True, eq=False)
class Space:
    """What may be chosen for a problem.

    Attributes:
      variables: in the order of the program, those of mesh axes first.
      meetings: dimensions that some operation can cut both, as unordered pairs: one mesh axis cannot cut both.
      fixed: mesh axes of the dimensions that the user placed.
      excepted: whether the user placed some operations otherwise than their names say.
      base: what zeros ask for, where that is more than what is fixed (`altered`).
    """

    variables: tuple[Variable, ...]
    meetings: frozenset[frozenset[str]] = frozenset()
    fixed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    excepted: bool = False
    base: Asked | None = None

    @cached_property
    def excepts(self) -> bool:
        """Whether an operation may be placed otherwise than its names say."""
        return self.excepted or any(each.kind == "except" for each in self.variables)

    @property
    def plain(self) -> Space:
        """The same choices without exceptions, and without what stands between other values."""
        kept = (each for each in self.variables if each.kind != "except")
        return replace(
            self, variables=tuple(replace(each, values=each.values[: each.coarse], finer=0) for each in kept)
        )

    @property
    def nothing(self) -> Choice:
        """The candidate that asks for nothing but what is fixed."""
        return (0,) * len(self.variables)

    @property
    def size(self) -> int:
        """How many candidates there are, those that planning refuses too."""
        size = 1
        for variable in self.variables:
            size *= len(variable.values)
        return size

    def chosen(self, choice: Sequence[int]) -> dict[tuple[str, str, tuple[str, ...]], Any]:
        """Kind, name and paths, and the value, of all that a candidate asks for."""
        pairs = zip(self.variables, choice, strict=True)
        return {(each.kind, each.name, each.paths): each.values[at] for each, at in pairs if at}


def items_of(name: str, chosen: Mapping[tuple[str, str, tuple[str, ...]], Any]) -> tuple[Item, ...]:
    """What a plan's entry of a dimension says, of what was chosen of it: mesh axes, a ring, chunks, a halo."""

    def of(kind: str) -> Any:
        return chosen.get((kind, name, ()))

    axes: tuple[str, ...] = of("axes") or ()
    placed: tuple[Item, ...] = (Striped(axes),) if axes and of("stripes") else axes
    ring = () if of("ring") is None or of("ring") in axes else (Ring(of("ring")),)
    chunks = () if of("chunks") is None else (Chunks(of("chunks")),)
    halo = () if of("halo") is None or not axes else (Halo(of("halo")),)
    return (*placed, *ring, *chunks, *halo)
