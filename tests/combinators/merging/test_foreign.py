"""Whose code merges: what ships is held by its laws and asked nothing, also of what is made of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.aggregation.aggregator import Aggregator
from combinators.claims import outside
from combinators.merging.foreign import is_foreign
from combinators.merging.monoid import Monoid
from laws.shipped_pieces import aggregators as shipped

X = np.linspace(-1, 1, 13, dtype=np.float32)
MADE = {
    "alone": lambda made: made,
    "beside another": lambda made: made & tp.aggregators.Mean(),
    "masked": Aggregator.masked,
    "by_key": lambda made: made.by_key(None, 3),
    "by_segment": lambda made: made.by_segment(None, 3),
    "by_run": Aggregator.by_run,
    "segmented": Aggregator.segmented,
}


@pytest.mark.parametrize("way", MADE)
def test_no_shipped_aggregator_merges_by_code_of_others(way: str) -> None:
    made = {name: MADE[way](shipped.make(name)) for name in shipped.names()}
    assert [name for name, aggregator in made.items() if is_foreign(aggregator.monoid)] == []


def test_no_shipped_monoid_merges_by_code_of_others() -> None:
    found = {name: getattr(tp.monoids, name) for name in dir(tp.monoids)}
    monoids = {name: value for name, value in found.items() if isinstance(value, Monoid)}
    assert len(monoids) > 10
    assert [name for name, monoid in monoids.items() if is_foreign(monoid)] == []


def ours(left: Any, right: Any) -> Any:
    return left + right


@pytest.mark.parametrize("combine", [ours, jnp.hypot])
def test_what_others_merge_by_is_told(combine: Any) -> None:
    foreign = Monoid(0.0, combine, commutative=True, inverse=jnp.negative)
    assert is_foreign(foreign)
    assert is_foreign(foreign & tp.monoids.Sum)


def test_only_what_merges_is_told() -> None:
    assert not is_foreign(Monoid(0.0, jnp.add, commutative=True, inverse=lambda state: -state))


@pytest.fixture
def _asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(workers: int) -> Any:
        raise AssertionError("something is asked")

    # Whoever asks has its name for `outside` by now, or takes it later: it is what all of them run that is changed.
    monkeypatch.setattr(outside, "ThreadPoolExecutor", asked)


@pytest.mark.usefixtures("_asks_nothing")
@pytest.mark.parametrize("name", ["Mean", "Moments", "Accuracy", "LogSumExp"])
def test_plans_of_shipped_aggregators_ask_nothing(name: str) -> None:
    aggregator, kinds = shipped.make(name), shipped.elements(name)
    rows = [jnp.asarray(X, kind.dtype) for kind in kinds]
    signature = ", ".join("row" for _ in kinds) + " -> "
    lower(tp.fold(aggregator & aggregator, signature), rows)


@pytest.mark.usefixtures("_asks_nothing")
def test_plans_of_others_ask() -> None:
    with pytest.raises(AssertionError, match="something is asked"):
        lower(tp.Reduce(lambda x: jnp.sqrt((x * x).sum()), "row -> ", Monoid(0.0, jnp.hypot, commutative=True)), [X])


def lower(fold: Any, rows: list[Any]) -> None:
    tp.plan(tp.trace(fold, *rows), tp.mesh(d=3), {"row": "d"}).compile().lower(*rows)
