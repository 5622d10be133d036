"""Methods by name."""

from __future__ import annotations

from collections.abc import Mapping

from tapestry_jax.searching.exhaustive import exhaustive
from tapestry_jax.searching.method import Method

METHODS: Mapping[str, Method] = {"exhaustive": exhaustive}
"""What `tp.search(method=)` may name, beside `auto`."""
