"""States of a monoid, drawn as programs over its operations: `identity`, `lift` and `combine`.

A raw state may be one that no fold ever reaches, and then a law that it breaks says nothing; and a state that only
operations reach may be just the one that breaks a law. So states are drawn as trees of operations, which are carried
along and printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from laws.draws.cells import Struct, build_cell, cells, is_dyadic, numbers, show_cell

Program = Any
"""`["identity"]`, `["lift", cell, ...]`, `["value", leaf, ...]` or `["combine", program, program]`."""

MOST_LEAVES = 4


def lifts(elements: Sequence[Struct], special: Sequence[Sequence[float]], domain: str) -> SearchStrategy[Program]:
    """Draw lifted elements, their numbers from a domain."""
    padded = [*special, *([()] * (len(elements) - len(special)))]
    drawn = [cells(e, numbers(e.dtype, domain, extra)) for e, extra in zip(elements, padded, strict=True)]
    return st.tuples(*drawn).map(lambda element: ["lift", *element])


def programs(leaf: SearchStrategy[Program]) -> SearchStrategy[Program]:
    """Draw trees of at most four leaves that are combined; half of them one leaf alone, seldom the identity."""
    leaves = weighted((leaf, 5), (st.just(["identity"]), 1))
    return weighted(*((_trees(leaves, n), weight) for n, weight in ((1, 4), (2, 2), (3, 1), (MOST_LEAVES, 1))))


def weighted(*pairs: tuple[SearchStrategy[Any], int]) -> SearchStrategy[Any]:
    """Draw from strategies by weight; `one_of` would count equal ones once."""
    listed = [strategy for strategy, weight in pairs for _ in range(weight)]
    return st.sampled_from(listed).flatmap(_itself)


def _itself(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return strategy


def _trees(leaf: SearchStrategy[Program], leaves: int) -> SearchStrategy[Program]:
    """Draw trees of a number of leaves: the leaves, and where to cut the list of them in two, again and again."""
    cuts = st.lists(st.integers(0, MOST_LEAVES), min_size=leaves - 1, max_size=leaves - 1)
    drawn = st.tuples(st.lists(leaf, min_size=leaves, max_size=leaves), cuts)
    return drawn.map(lambda pair: _tree(*pair))


def _tree(leaves: list[Program], cuts: list[int]) -> Program:
    if len(leaves) == 1:
        return leaves[0]
    at = 1 + cuts[0] % (len(leaves) - 1)
    return ["combine", _tree(leaves[:at], cuts[1:at]), _tree(leaves[at:], cuts[at:])]


def build_state(
    program: Program,
    *,
    identity: Callable[[], Any],
    lift: Callable[..., Any],
    value: Callable[[Sequence[Any]], Any],
    combine: Callable[[Any, Any], Any],
) -> Any:
    """Run a program; the keywords say what its operations are."""
    operations: dict[str, Any] = {"identity": identity, "lift": lift, "value": value, "combine": combine}
    kind, *rest = program
    if kind == "combine":
        rest = [build_state(part, identity=identity, lift=lift, value=value, combine=combine) for part in rest]
        return combine(*rest)
    return value(rest) if kind == "value" else operations[kind](*rest)


def show_state(program: Program) -> str:
    """A program as text: `combine(lift(1), identity)`."""
    kind, *rest = program
    if kind == "identity":
        return "identity"
    parts = [show_state(part) for part in rest] if kind == "combine" else [show_cell(part) for part in rest]
    return f"{kind}({', '.join(parts)})"


def is_exact_state(program: Program) -> bool:
    """Whether all elements of a program are integers or short dyadic fractions."""
    kind, *rest = program
    return all(is_exact_state(part) for part in rest) if kind == "combine" else is_dyadic(rest)


def build_element(elements: Sequence[Struct], recipe: Sequence[Any]) -> tuple[Any, ...]:
    """The arrays of one drawn element."""
    return tuple(build_cell(struct, part) for struct, part in zip(elements, recipe, strict=True))
