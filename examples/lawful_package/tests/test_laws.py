"""One line proves a piece: a test a law."""

from __future__ import annotations

import tapestry_jax as tp
from circular import RESULTANT_LENGTH, blur

test_resultant = tp.laws.check(RESULTANT_LENGTH, laws=["aggregator", "monoid"], examples=10)
test_blur = tp.laws.check(blur, laws=["map"], examples=5)
