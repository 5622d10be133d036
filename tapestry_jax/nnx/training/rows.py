"""Which dimension of which array of a batch counts its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Rows:
    """The dimension that batches are rows of: the first one of most arrays.

    An array that is the same for every batch, such as weights of classes, may come before them.

    Attributes:
      name: of the dimension; None where it has no name.
      at: which leaf of a batch has it first; None where no array has a dimension.
      size: in the types that this was read from.
      types: those.
    """

    name: str | None
    at: int | None
    size: int
    types: tuple[Any, ...] = ()

    @staticmethod
    def of(types: Sequence[Any]) -> Rows:
        """Read off the types of a batch; where as many arrays begin with another name, `batch` counts, or the first."""
        kinds = jax.tree.leaves(types)
        first = [kind.names[0] for kind in kinds if kind.shape]
        if not first:
            return Rows(None, None, 1, tuple(types))
        counts = Counter(first)
        name = max(counts, key=lambda each: (counts[each], each == "batch"))
        at = next(at for at, kind in enumerate(kinds) if kind.shape and kind.names[0] == name)
        return Rows(name, at, kinds[at].shape[0], tuple(types))

    def count(self, args: Sequence[Any]) -> int:
        """The rows of a batch, in arrays; 1 where no array has a dimension."""
        return 1 if self.at is None else jax.tree.leaves(args)[self.at].shape[0]

    def are_none(self, args: Sequence[Any]) -> bool:
        """Whether a batch is one that the loss takes, but for its rows, of which there are none."""
        leaves, tree = jax.tree.flatten(list(args))
        kinds, known = jax.tree.flatten(list(self.types[: len(args)]))
        if self.at is None or tree != known:
            return False
        pairs = list(zip(leaves, kinds, strict=True))
        if any(len(leaf.shape) != len(kind.shape) for leaf, kind in pairs):
            return False
        # Behind weights of classes all that begins with rows has none: else it is a mistake, and told as one.
        return not any(leaf.shape[0] for leaf, kind in pairs if self.name in kind.names[:1])
