"""The monoid of runs: folds and scans that begin anew wherever a label changes."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.merging.chosen import choose, merge_chosen
from combinators.merging.monoid import Monoid

# State: (kind, label, state) with kind 0 for nothing, 1 for one run, 2 for several; label and state are the last run's.


def runs(monoid: Monoid) -> Monoid:
    """Make the monoid whose scan begins anew whenever the label changes.

        (k1, l1, a) + (k2, l2, b) = (k1, l2, a + b) if k2 = 1 and l1 = l2, else (2, l2, b)

    It is `segmented` without flags: a boundary between two pieces, wherever they lie, shows in their labels. A label
    that comes back after another one begins a new run.

    Args:
      monoid: merges states within a run; need not be commutative.

    Returns:
      A monoid of states `(kind, label, state)`; `lift` makes `(1, label, state)`, `kind` an int8.

    Laws: segmented_scan: the prefixes are those of every run on its own.
    Source: original in this form; after Blelloch 1990, section 1.5.
    """
    return Monoid(Nothing(monoid), Continue(monoid), name=f"runs of {repr(monoid)[len('Monoid(') : -1]}")


@final
@dataclass(frozen=True)
class Nothing:
    """The identity: no run."""

    monoid: Monoid

    def __call__(self, cell_type: Any) -> Any:
        """Return `(0, 0, e)`."""
        kind, label, inner = cell_type
        return jnp.zeros(kind.shape, kind.dtype), jnp.zeros(label.shape, label.dtype), self.monoid.identity_for(inner)


@final
@dataclass(frozen=True)
class Continue:
    """Merge two states; the left one is dropped where the right one does not continue its run."""

    monoid: Monoid

    def __call__(self, left: Any, right: Any) -> Any:
        """Return kind, label and state of the last run."""
        (kind1, label1, earlier), (kind2, label2, later) = left, right
        continues = (kind2 == 1) & (kind1 > 0) & (label1 == label2)
        kind = jnp.where(kind2 == 0, kind1, jnp.where(continues | (kind1 == 0), jnp.maximum(kind1, kind2), 2))
        # Nothing is merged with nothing, and what is dropped is not merged either: of an infinity beside it even a
        # slope of 0 would be NaN.
        alone = choose(kind2 == 0, earlier, later)
        state = merge_chosen(self.monoid, continues, earlier, later, alone, dropped=True)
        return kind.astype(kind1.dtype), jnp.where(kind2 == 0, label1, label2), state
