"""The monoid of the least and the greatest value."""

from __future__ import annotations

from dataclasses import replace

from combinators.merging.monoid import Monoid
from combinators.merging.product import product
from combinators.monoids.elementwise import Max, Min

MinMax: Monoid = replace(product(Min, Max), name="MinMax")
"""State `(least, greatest)`, of any ordered dtype; identity (greatest, least) value of the dtype. NaN wins in both.

A product: a mesh axis folds it with one native collective a part.
"""
