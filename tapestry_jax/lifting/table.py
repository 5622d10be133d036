"""Primitive to rule."""

from __future__ import annotations

from tapestry_jax.lifting.control import branches, derived, loops, prefixes, reduced, solves
from tapestry_jax.lifting.rules import (
    along,
    cellwise,
    contractions,
    custom,
    inlined,
    keys,
    lookups,
    reductions,
    reshapes,
    running,
    slices,
    views,
    windows,
)
from tapestry_jax.lifting.walk import KEYS, Lift

RULES: dict[str, Lift] = {
    **cellwise.TABLE,
    **custom.TABLE,
    **views.TABLE,
    **reshapes.TABLE,
    **contractions.TABLE,
    **reductions.TABLE,
    **running.TABLE,
    **along.TABLE,
    **slices.TABLE,
    **lookups.TABLE,
    **windows.TABLE,
    **loops.TABLE,
    **branches.TABLE,
    **derived.TABLE,
    **prefixes.TABLE,
    **reduced.TABLE,
    **solves.TABLE,
    **inlined.TABLE,
    KEYS: keys.keys,
}

THROUGH = frozenset({*loops.TABLE, *branches.TABLE, *inlined.TABLE})
"""Primitives that hold programs: their rules take random keys as they are."""
