"""Laws of how a monoid runs: eager as compiled, without changing its arguments, with an equality that is one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from laws.law import Law, drawn
from laws.subjects.carrier import MonoidSubject as Monoid

JAX = "JAX: transformations keep the meaning of pure functions"


def eager(s: Monoid, a: Any, b: Any) -> tuple[Any, Any]:
    """Combine operation by operation, and compiled."""
    return s.observe(s.monoid.merge(a, b)), s.observe(s.add(a, b))


def unchanged(s: Monoid, a: Any, b: Any) -> tuple[Any, Any]:
    """Combine copies that can be written to, and look at them afterwards."""
    copies = _copies((a, b))
    s.monoid.merge(*copies)
    return copies, _copies((a, b))


def equality(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Observe a state, and a copy of it operation by operation.

    States are equal where what is observed of them is, which is symmetric and transitive whatever is observed;
    reflexive it is only where the same is observed every time.
    """
    return s.carrier.observe(_copies(a)), s.observe(a)


def _copies(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


LAWS = (
    Law("monoid.eager", "a + b, not compiled ~ a + b, compiled", JAX, eager, drawn("state", "a b"), eager=True),
    Law(
        "monoid.unchanged",
        "a, b after a + b ~ a, b before",
        "states are values",
        unchanged,
        drawn("state", "a b"),
        judged="bits",
        eager=True,
    ),
    Law(
        "monoid.equality",
        "a ~ a",
        "the definition of an equality: reflexive",
        equality,
        drawn("state", "a"),
        eager=True,
    ),
)
