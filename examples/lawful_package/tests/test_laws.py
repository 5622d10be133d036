"""One line proves a piece: a test a law."""

from __future__ import annotations

import tapestry_jax as tp
from circular import MEAN_DIRECTION, blur

test_direction = tp.laws.check(MEAN_DIRECTION, laws=["aggregator", "monoid"], examples=10)
test_blur = tp.laws.check(blur, laws=["map"], examples=5)
