"""Methods by name."""

from __future__ import annotations

from collections.abc import Mapping

from tapestry_jax.searching.exact.milp import milp
from tapestry_jax.searching.finding.anneal import anneal
from tapestry_jax.searching.finding.auto import auto
from tapestry_jax.searching.finding.exhaustive import exhaustive
from tapestry_jax.searching.method import Method

METHODS: Mapping[str, Method] = {"auto": auto, "exhaustive": exhaustive, "anneal": anneal, "milp": milp}
"""What `tp.search(method=)` may name."""
