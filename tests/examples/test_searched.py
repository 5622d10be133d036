"""What the quickstart says of a plan that was found."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import tapestry_jax as tp


@pytest.fixture
def found_beside(example: Any) -> Any:
    return example("searched").found_beside


def by_hand(entries: dict[str, str]) -> tp.Plan:
    types = tp.TensorType({"i": 65536, "k": 1024}), tp.TensorType({"k": 1024, "n": 1024})
    product = tp.trace(tp.einsum("i k, k n -> i n"), *types)
    return tp.plan(product, jax.sharding.AbstractMesh((2, 4), ("data", "model")), entries)


def test_searched_says_both_prices_and_where_dimensions_go(found_beside: Any) -> None:
    plan = by_hand({"k": "data"})
    told, placed = found_beside(plan, "h100:1x8")
    before = plan.cost("h100:1x8", grad=True).seconds
    assert told.startswith(f"by hand, a step takes {before:.3g} s on H100 by plan.cost; tp.search finds ")
    assert float(told.split("finds ")[1].removesuffix(" s:")) < before / 2
    assert "i: " in placed and "data" in placed and "model" in placed


def test_searched_an_unknown_machine_ends_the_example_with_a_message(found_beside: Any) -> None:
    with pytest.raises(SystemExit, match=r"error: no such machine(?s:.*)nowhere"):
        found_beside(by_hand({"k": "data"}), "nowhere:2x4")
