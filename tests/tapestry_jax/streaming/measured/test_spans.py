"""Few spans are kept of many, and those with the longest gaps between them stay apart."""

from __future__ import annotations

import itertools

from tapestry_jax.streaming.measured.spans import MOST, Spans, halved


def test_neighbours_with_the_shortest_gaps_are_joined() -> None:
    assert halved([(0.0, 1.0), (1.1, 2.0), (5.0, 6.0), (6.5, 7.0)]) == [(0.0, 2.0), (5.0, 7.0)]


def test_few_are_kept_and_the_long_gap_stays() -> None:
    spans = Spans()
    for number in range(10 * MOST):
        at = number + (1000.0 if number >= 5 * MOST else 0.0)
        spans.add(at, at + 0.5)
    found = spans.since(0.0)
    assert len(found) <= MOST and found[0][0] == 0.0 and found[-1][1] == 10 * MOST - 1 + 1000.5
    assert (5 * MOST - 0.5, 5 * MOST + 1000.0) in {(a[1], b[0]) for a, b in itertools.pairwise(found)}
