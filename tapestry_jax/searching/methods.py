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

UNSEEN: Mapping[str, tuple[str, str]] = {
    "milp": (
        "this is the word of method='milp' alone: it tries no chunks, rings or halos, with which less may be enough",
        "Take method='anneal', which tries them; or give",
    )
}
"""Of a method that does not look at all there is: what it does not see, and how a remedy begins."""
