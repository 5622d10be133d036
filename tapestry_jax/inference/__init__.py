"""What an unknown kernel reads, found by changing what it is given."""

from __future__ import annotations

from tapestry_jax.inference.infer import infer as infer
from tapestry_jax.inference.inferred import Inferred as Inferred
