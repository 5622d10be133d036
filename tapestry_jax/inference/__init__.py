"""What an unknown kernel reads, found by changing what it is given.

Read `infer` and `inferred`; then `draws`, `probe` and `relation`, which make one finding; `follow`, `folds` and
`names` make a signature of `findings`.
"""

from __future__ import annotations

from tapestry_jax.inference.infer import infer as infer
from tapestry_jax.inference.inferred import Inferred as Inferred
