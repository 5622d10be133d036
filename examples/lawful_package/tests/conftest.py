"""Laws are many small programs: XLA need not make each of them fast."""

from __future__ import annotations

import tapestry_jax as tp

tp.laws.compile_quickly()
