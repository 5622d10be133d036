"""The monoid of the least and the greatest value."""

from __future__ import annotations

from dataclasses import replace

from combinators.monoid import Monoid
from combinators.monoids.elementwise import Max, Min
from combinators.product import product

MinMax: Monoid = replace(product(Min, Max), name="MinMax")
"""State `(least, greatest)`, of any ordered dtype; identity (greatest, least) value of the dtype. NaN wins in both.

A product: a mesh axis folds it with one native collective a part.
"""
