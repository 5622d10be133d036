"""Merges that somebody wrote with a pole in them, from which nothing comes back where nothing comes to them.

Of `sqrt(a * a + b * b)` the slope at two zeros is infinite. Where a third state is larger an exact zero comes to them,
times which an infinity is NaN; and which states meet is the plan's to say. What this library merges by looks at its
infinities itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, cast, final

import jax
import jax.numpy as jnp

from combinators.claims.provenance import is_ours
from combinators.equations.silent import silent
from combinators.equations.steep import is_steep
from combinators.frozen import dataclass
from combinators.kernels.captured import program_at
from combinators.kernels.immutable import Immutable
from combinators.merging.parts import Wrapping
from combinators.settings import remembered


def careful(combine: Callable[..., Any]) -> Callable[..., Any]:
    """The same merge; where its slope may be infinite, nothing comes back of exact zeros.

    Args:
      combine: (state, state) -> state, of one cell.
    """
    if _is_ours(combine):
        return combine
    # By key and side by side each merge has cotangents of its own.
    return combine.each(careful) if isinstance(combine, Wrapping) else Careful(combine)


@final
@dataclass(frozen=True)
class Careful(Immutable):
    """A merge of somebody's; where it has a pole, nothing comes back of exact zeros."""

    combine: Callable[..., Any]

    def __call__(self, left: Any, right: Any) -> Any:
        """Merge two states."""
        merge = silent(self.combine) if _is_steep(self.combine, left, right) else self.combine
        return merge(left, right)


def _is_ours(function: object) -> bool:
    """Whether it is written here, and all that it calls; a monoid that it holds is careful itself."""
    if isinstance(function, Careful):
        return True
    if not is_ours(getattr(function, "__module__", None)):
        return False
    if isinstance(function, type) or not is_dataclass(function):
        return True
    held = [getattr(function, each.name) for each in fields(function)]
    flat = [one for each in held for one in (cast("tuple[Any, ...]", each) if isinstance(each, tuple) else (each,))]
    return all(map(_is_ours, filter(callable, flat)))


def _is_steep(combine: Callable[..., Any], left: Any, right: Any) -> bool:
    leaves, tree = jax.tree.flatten((left, right))
    types = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    try:
        return _is_steep_at(combine, tree, types)
    except TypeError:  # one that cannot be hashed
        return _look(combine, tree, types)


def _look(combine: Callable[..., Any], tree: Any, types: tuple[Any, ...]) -> bool:
    cells = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*each) for each in types])
    program = program_at(combine, cells)
    return program is not None and is_steep(program.jaxpr)


_is_steep_at = remembered(maxsize=1024)(_look)
