"""Making a pair that fails smaller: fewer steps, less in the plan."""

from __future__ import annotations

from tests.pairs.pair import Compare, Outcome, check
from tests.pairs.plans import Placing
from tests.pairs.programs import Program


def smaller(
    program: Program, placing: Placing, outcome: Outcome, by: Compare | None = None, attempts: int = 100
) -> tuple[Program, Placing, Outcome]:
    """Leave out one thing after the other, while the verdict stays the same.

    Args:
      program: and
      placing: what failed.
      outcome: how.
      by: what compares; by default the program run by NumPy.
      attempts: the most candidates to look at.

    Returns:
      The smallest pair found, and what is wrong with it.
    """
    tried = 0
    going = True
    while going and tried < attempts:
        going = False
        programs = [program.without(step) for step in program.steps]
        candidates = [(p, placing) for p in programs] + [(program, p) for p in placing.smaller()]
        for one, other in candidates:
            tried += 1
            _, found = check(one, other, repair=False, by=by)
            if found.verdict == outcome.verdict:
                program, placing, outcome, going = one, other, found, True
                break
    return program, placing, outcome
