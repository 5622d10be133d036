"""Every planted mutant is caught within a hundred examples, whatever the seed."""

from __future__ import annotations

import pytest

from tests.laws.mistakes.planted import EXAMPLES, planted

PLANTED = list(planted())


def test_there_are_sixty_mutants_and_more():
    assert len(PLANTED) >= 60


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mutant", PLANTED, ids=[f"{mutant.law}-{mutant.name}" for mutant in PLANTED])
def test_mutant_is_caught_within_a_hundred_examples(mutant, seed):
    tried = mutant.caught_after(seed)
    assert tried is not None
    assert tried <= EXAMPLES
