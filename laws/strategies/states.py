"""States of a monoid as a strategy for users' own properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from combinators.aggregation.aggregator import Aggregator
from combinators.errors import message
from combinators.merging.monoid import Monoid
from laws.errors import LawError
from laws.given import given
from laws.pieces import Asked
from laws.subject import DOMAINS
from laws.subjects.carrier import MonoidSubject
from laws.subjects.carriers import aggregator_subjects, monoid_subjects


def states(piece: Any, types: Any = None, **options: Any) -> SearchStrategy[Any]:
    """Draw states of a monoid or aggregator as programs over its operations: identity, lift and combine.

    A raw state may be one that no fold ever reaches, and one that a fold reaches may be just the one that matters.

    Args:
      piece: a monoid or an aggregator.
      types: of the elements; as in `assert_lawful`.
      options: `lift`, `values`, as in `assert_lawful`.

    Returns:
      A strategy of states, pytrees of arrays.

    Raises:
      LawError: when the piece has no states, or it is not known how they are made.

    Example:
      >>> import tapestry_jax as tp
      >>> from hypothesis import find
      >>> [float(x) for x in find(states(tp.monoids.Mean), lambda state: state[1] >= 2)]
      [0.0, 2.0]
    """
    asked = Asked.of(given(piece, **options), types=types)
    if isinstance(asked.piece, Monoid):
        subjects = monoid_subjects(asked, asked.piece)
    elif isinstance(asked.piece, Aggregator):
        subjects = [s for s in aggregator_subjects(asked, asked.piece) if isinstance(s, MonoidSubject)]
    else:
        raise LawError(
            message(f"laws.states: `{asked.called}` has no states.", remedy="Pass a tp.Monoid or a tp.Aggregator.")
        )
    return st.one_of([_states(subject, domain) for subject in subjects for domain in DOMAINS])


def _states(subject: MonoidSubject, domain: str) -> SearchStrategy[Any]:
    return subject.drawing("state", domain).map(lambda recipe: subject.build("state", recipe))
