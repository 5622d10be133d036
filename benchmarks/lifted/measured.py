"""How it is measured: what the page says of it, too."""

from __future__ import annotations

LIMIT = 15
"""Seconds of a search."""
LARGER = 64
"""How many times longer dimensions count as being where the search prices them."""
TOLERANCE = 1e-4
"""Of the largest cell: what float32 loses when sums are taken in another order, layer after layer."""
