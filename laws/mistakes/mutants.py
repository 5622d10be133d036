"""Which laws would have caught the mistakes that people make: a test of the laws on a piece of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import jax

from combinators.errors import message, spelt
from laws.counterexamples.search import Search, search
from laws.errors import LawError
from laws.examine import outcomes
from laws.law import Law, drawn
from laws.mistakes.mutations import Mutation, mutations
from laws.pieces import Asked
from laws.subject import Subject
from laws.subjects.aggregator import AggregatorSubject
from laws.subjects.carrier import MonoidSubject
from laws.subjects.leaf import LeafSubject

_DUAL = "the dual of a monoid is a monoid: only an aggregator's reference tells them apart"


@final
@dataclass(frozen=True)
class Mutant:
    """A planted mistake and who saw it.

    Attributes:
      name: what was done.
      caught_by: the laws that failed.
      is_equivalent: whether the piece gives the same results still, so that there is nothing to catch.
      hint: why no law can see it, where that is known.
    """

    name: str
    caught_by: tuple[str, ...]
    is_equivalent: bool = False
    hint: str | None = None

    def __str__(self) -> str:
        missed = "makes no difference here" if self.is_equivalent else "NOT CAUGHT"
        found = ", ".join(self.caught_by) or missed
        return f"{self.name}: {found}" + (f" ({self.hint})" if self.hint else "")


@final
@dataclass(frozen=True)
class Mutants:
    """All planted mistakes.

    Attributes:
      mutants: in the order in which they were planted.
    """

    mutants: tuple[Mutant, ...]

    @property
    def survivors(self) -> tuple[str, ...]:
        """The mistakes that make a difference, and that no law saw."""
        return tuple(m.name for m in self.mutants if not m.caught_by and not m.is_equivalent)

    def __str__(self) -> str:
        real = [m for m in self.mutants if not m.is_equivalent]
        caught = sum(bool(m.caught_by) for m in real)
        return "\n".join([f"caught {caught} of {len(real)} mutants", *(f"  {m}" for m in self.mutants)])


def mutants(
    piece: Any,
    types: Sequence[Any] | None = None,
    *,
    lift: Callable[..., Any] | None = None,
    values: Any = None,
    observe: Callable[[Any], Any] | None = None,
    laws: str | Sequence[str] | None = None,
    name: str | None = None,
    only: str | Sequence[str] | None = None,
    examples: int = 25,
    seed: int = 0,
) -> Mutants:
    """Plant mistakes in a piece and say which laws see them.

    The mistakes are those that people make: swapped arguments, a wrong identity, a dropped term, an off-by-one
    projection, a forgotten halo, a mean of means, a missing mask, a declaration that is not true.

    Args:
      piece: a monoid, an aggregator, or an arrow; of composed arrows every operation is mutated on its own.
      types: of elements or operands, and so on as in `assert_lawful`.
      lift: for a monoid: cells of one element -> state.
      values: elements, states or operands.
      observe: for a monoid: state -> what counts of it.
      laws: names or families of laws that may catch them.
      name: what messages call the piece.
      only: the mistakes to plant, by how their names begin: `"swap"`, `["drop a term", "wrong identity"]`.
      examples: arguments drawn for every law and mistake.
      seed: of the draws.

    Returns:
      Every mistake with the laws that failed on it.

    Raises:
      LawError: when the piece has no mutations, or an option cannot be used.

    Example:
      >>> import jax.numpy as jnp, tapestry_jax as tp
      >>> plus = tp.Monoid(0.0, jnp.add, name="Plus")
      >>> print(mutants(plus, laws=["left_identity", "associativity"], only="wrong identity", examples=10))
      caught 1 of 1 mutants
        wrong identity: monoid.left_identity
    """
    asked = Asked.of(piece, types=types, lift=lift, values=values, observe=observe, laws=laws, name=name)
    begin = _beginnings(only)
    subjects = asked.subjects()
    how = Search(examples, seed, shrink=False)
    found = [mutation for subject in _mutable(subjects) for mutation in mutations(subject)]
    planted = [mutation for mutation in found if not begin or mutation.name.startswith(begin)]
    if found and not planted:
        raise LawError(
            message(
                f"`{asked.called}` has no mutations that begin with {', '.join(map(repr, begin))}.",
                f"it has {', '.join(mutation.name for mutation in found)}",
                remedy="Use the beginning of one of these.",
            )
        )
    if not planted:
        raise LawError(
            message(
                f"`{asked.called}` has no mutations.", remedy="Pass a monoid, an aggregator or an arrow of operations."
            )
        )
    return Mutants(tuple(_judged(mutation, asked.selected, how) for mutation in planted))


def _beginnings(only: Any) -> tuple[str, ...]:
    listed: Any = () if only is None else (only,) if isinstance(only, str) else only
    if isinstance(listed, list | tuple) and all(isinstance(name, str) for name in cast("Sequence[Any]", listed)):
        return tuple(cast("Sequence[str]", listed))
    raise LawError(
        message(
            "laws.mutants: `only` is no list of mistakes.",
            f"got {type(only).__name__}: {spelt(only)}",
            remedy='Pass how their names begin: only=["swap", "wrong identity"].',
        )
    )


def _mutable(subjects: Sequence[Subject]) -> list[Subject]:
    """An aggregator has its monoid's mistakes as its own; a monoid is mutated on the first of its types."""
    aggregators = [s for s in subjects if isinstance(s, AggregatorSubject)]
    if aggregators:
        return [*aggregators]
    first = [s for s in subjects if isinstance(s, MonoidSubject)][:1]
    return [*first, *(s for s in subjects if isinstance(s, LeafSubject))]


def _judged(mutation: Mutation, laws: Sequence[Law], how: Search) -> Mutant:
    after = mutation.after
    subjects: list[Subject] = [after]
    if isinstance(after, AggregatorSubject):
        subjects.append(MonoidSubject(after.aggregator.monoid, after.carrier, after.name))
    caught = tuple(dict.fromkeys(e.law for e in outcomes(laws, subjects, how) if e.error is not None))
    alike = not caught and isinstance(search(_likeness(mutation), mutation.before, how), int)
    dual = mutation.name == "swap the arguments" and not caught and not alike
    return Mutant(mutation.name, caught, alike, _DUAL if dual else None)


def _likeness(mutation: Mutation) -> Law:
    """The law that a mutant gives the same results as the piece."""
    takes = drawn("state", "a b") if isinstance(mutation.before, MonoidSubject) else drawn("elements", "xs")
    return Law(
        "mutant.likeness",
        "mutant ~ piece",
        "original",
        lambda s, *xs: _both(mutation, s, *xs),
        takes,
        depth=4,
        eager=True,
    )


def _both(mutation: Mutation, s: Subject, *xs: Any) -> tuple[Any, Any]:
    left, right = (_results(subject, *xs) for subject in (mutation.after, s))
    return left, right


def _results(s: Subject, *xs: Any) -> Any:
    if isinstance(s, MonoidSubject):
        e = s.monoid.identity_for(s.carrier.cell_type)
        return s.observe(s.add(*xs)), s.observe(s.add(e, xs[0])), s.observe(s.add(xs[0], e))
    if isinstance(s, AggregatorSubject):
        each = [s.lift(*(x[i] for x in xs[0])) for i in (0, 1)]
        nothing = s.identity_like(each[0])
        return s.present(s.many(*xs[0])), s.present(s.add(*each)), s.present(s.add(nothing, each[0]))
    assert isinstance(s, LeafSubject)
    state = s.run(xs[0], s.whole)
    return s.presented(state), jax.tree.leaves(state)
