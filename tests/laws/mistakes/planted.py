"""Every mutant that is planted in the tests of the laws, and how many examples its law takes to see it.

`python -m tests.laws.mistakes.planted --seeds 0 1` prints the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tapestry_jax as tp
from laws.counterexamples.search import Failure, Search, search
from laws.given import OPTIONS
from laws.pieces import Asked
from tests.laws.families import (
    test_aggregators,
    test_arrows,
    test_leaves,
    test_monoids,
    test_plans,
    test_structures,
)

EXAMPLES = 100


@dataclass(frozen=True)
class Planted:
    """A mutant, and the law that has to refuse it."""

    law: str
    piece: Any
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What was changed, as the piece calls itself."""
        return Asked.of(self.piece, **self.options).called

    def caught_after(self, seed: int, examples: int = EXAMPLES) -> int | None:
        """Examples until the law fails; None where it holds on all."""
        asked = Asked.of(self.piece, laws=self.law, **self.options)
        for subject in asked.subjects():
            for law in asked.selected:
                if law.family in subject.families and law.applies(subject) is None:
                    found = search(law, subject, Search(examples, seed, shrink=False))
                    if isinstance(found, Failure):
                        return found.tried
        return None


def planted() -> Iterator[Planted]:
    """All of them, family by family."""
    for law, mutant in test_monoids.MUTANTS.items():
        yield Planted(law, mutant["piece"], {name: mutant[name] for name in OPTIONS if name in mutant})
    for law, piece in test_aggregators.MUTANTS.items():
        yield Planted(law, piece)
    for law, pieces in test_leaves.MUTANTS.items():
        yield from (Planted(law, piece) for piece in pieces)
    for law, piece in test_arrows.MUTANTS.items():
        yield Planted(law, piece, {"types": [test_arrows.f32(3)]})
    for law in test_arrows.FEEDBACK:
        yield Planted(law, test_arrows.Restarting(), {"types": [test_arrows.f32(3)] * 2})
    for law, piece in test_structures.MUTANTS.items():
        yield Planted(law, piece, {"types": [test_structures.F32]})
    for law, mutant in test_plans.MUTANTS.items():
        is_plan = isinstance(mutant, test_plans.FakePlan | tp.Plan)
        yield Planted(law, mutant if is_plan else test_plans.FakePlan(test_plans.MLP, mutant))
    yield Planted("plan.gradients", test_plans.UNEVEN)


def main(arguments: list[str] | None = None) -> int:
    """Print one line for each mutant, and how many were caught; 1 where one was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.mistakes.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    chosen = parser.parse_args(arguments)
    missed, most, count = 0, 0, 0
    for mutant in planted():
        found = [mutant.caught_after(seed, chosen.examples) for seed in chosen.seeds]
        count, missed = count + 1, missed + found.count(None)
        most = max(most, *(number or 0 for number in found))
        said = ", ".join("NOT CAUGHT" if number is None else str(number) for number in found)
        print(f"{mutant.law:<30} {mutant.name:<28} {said}", flush=True)
    print(f"{count} mutants, seeds {chosen.seeds}: {missed} not caught; at most {most} examples of {chosen.examples}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
