"""The segmented monoid: folds and scans that begin anew wherever a segment begins."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.merging.chosen import merge_chosen
from combinators.merging.monoid import Monoid

# State: (begins, state): whether a segment begins in what was merged, and the state of its last segment.


def segmented(monoid: Monoid) -> Monoid:
    """Make the monoid whose scan begins anew at every flag.

        (f1, a) + (f2, b) = (f1 or f2, b if f2 else a + b)

    Scanned, the second part at `t` is the fold of the segment's elements up to `t`; folded, that of the last segment.
    Without flags it is the monoid itself. Never commutative.

    Args:
      monoid: merges states within a segment; need not be commutative.

    Returns:
      A monoid of states `(begins, state)`, `begins` a boolean of the cell's outer shape.

    Laws: segmented_scan: the prefixes are those of every segment on its own.
    Source: Blelloch 1990, section 1.5; Schwartz 1980.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import Scan, monoids
      >>> scan = Scan(segmented(monoids.Sum), "t, t -> t, t", over="t")
      >>> scan(jnp.array([True, False, True, False]), jnp.array([1, 2, 3, 4]))[1].tolist()
      [1, 3, 3, 7]
    """
    return Monoid(Unbroken(monoid), Restart(monoid), name=f"segmented {_label(monoid)}")


@final
@dataclass(frozen=True)
class Unbroken:
    """The identity beside a flag: no segment begins, and nothing was merged."""

    monoid: Monoid

    def __call__(self, cell_type: Any) -> Any:
        """Return `(False, e)`."""
        flag, inner = cell_type
        return jnp.zeros(flag.shape, flag.dtype), self.monoid.identity_for(inner)


@final
@dataclass(frozen=True)
class Restart:
    """Merge two states; the left one is dropped where a segment begins on the right."""

    monoid: Monoid

    def __call__(self, left: Any, right: Any) -> Any:
        """Return the merged flag and the state of the last segment."""
        (begins1, earlier), (begins2, later) = left, right
        # What is dropped is not merged either: of an infinity beside it even a slope of 0 would be NaN.
        return begins1 | begins2, merge_chosen(self.monoid, ~begins2, earlier, later, later, dropped=True)


def _label(monoid: Monoid) -> str:
    return repr(monoid)[len("Monoid(") : -1]
