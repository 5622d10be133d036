"""One program is the same on one device, on the mesh, block by block, as a stream and on workers; faults are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
import tapestry_jax as tp
from tapestry_jax.lowering import program as lowering
from tapestry_jax.shards.parts import Merge
from tapestry_jax.streaming.cluster import driver
from tapestry_jax.streaming.moving import feeding
from tests.tapestry_jax.shards.proof.test_damage import changed
from tests.workers import worker_in_this_process

agg = tp.aggregators
ALL = ("plan.blocks", "plan.values", "plan.streamed", "plan.clustered")
CHUNKS = tp.chunks(size=2)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with worker_in_this_process() as found:
        yield found


def centred(x: Any) -> Any:
    mean = tp.fold(agg.Mean(), "row c -> c")(x)
    return tp.Map(lambda a, m: a - m, "row c, c -> row c")(x, mean), tp.fold(agg.Sum() & agg.Last(), "row c -> c")(x)


def planned(program: Any = centred, rows: int = 11, dtype: Any = "float32") -> tp.Plan:
    """Over a prime number of rows, in chunks of two, on two devices."""
    graph = tp.trace(program, tp.TensorType({"row": rows, "c": 3}, dtype))
    return tp.plan(graph, tp.mesh(data=2), {"row": ("data", CHUNKS)})


def test_one_program_gives_the_same_in_five_embeddings(client: Any) -> None:
    assert laws.assert_embeddings(planned(), engine=client).held == ALL


@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(dtype, marks=pytest.mark.thorough) for dtype in ("int32", "bool"))]
)
def test_embeddings_of_other_dtypes(dtype: str, client: Any) -> None:
    largest = tp.fold(agg.Max(), "row c -> c")
    assert laws.assert_embeddings(planned(largest, 7, dtype), engine=client).held == ALL


def test_arguments_that_are_given_are_used(client: Any) -> None:
    table = tp.Map(lambda rows, t: t[rows], "row, [v] -> row", name="look up")
    graph = tp.trace(table, tp.TensorType({"row": 5}, "int32"), tp.TensorType({"v": 4}))
    plan = tp.plan(graph, tp.mesh(data=1), {"row": CHUNKS})
    args = np.array([3, 0, 2, 1, 3], np.int32), np.array([1, 2, 4, 8], np.float32)
    assert laws.assert_embeddings(plan, args, engine=client).held == ALL


def test_what_a_plan_cannot_be_is_not_checked_and_the_report_says_why() -> None:
    narrow = planned(tp.fold(agg.Max(), "row c -> c"), 7)
    report = laws.assert_embeddings(narrow)
    assert report.not_checked == {"plan.clustered": "no engine= was given"}
    graph = narrow.graph
    report = laws.assert_embeddings(tp.plan(graph, tp.mesh(data=2), {"row": "data"}), engine="dask")
    assert set(report.not_checked.values()) == {"`Plan` takes no dimension in chunks"}
    ordered = tp.trace(tp.Map(lambda a: jnp.sort(a, axis=0), "[row] c -> [row] c"), tp.TensorType({"row": 6, "c": 3}))
    whole = tp.plan(ordered, tp.mesh(data=1), {"c": CHUNKS})
    assert "plan.streamed" in laws.assert_embeddings(whole).held
    running = tp.trace(tp.scan(agg.Sum(), "row c -> row c", over="row"), tp.TensorType({"row": 6, "c": 3}))
    inside = tp.plan(running, tp.mesh(data=1), {"row": CHUNKS, "c": CHUNKS})
    report = laws.assert_embeddings(inside, engine="dask")
    assert "scans whose totals can be found range by range" in report.not_checked["plan.clustered"]


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(laws.LawError, match=r"laws\.assert_embeddings: this is no plan"):
        laws.assert_embeddings(centred)


def unmerged_on_the_mesh(monkeypatch: pytest.MonkeyPatch, plan: tp.Plan) -> None:
    """Devices keep their parts of a fold to themselves."""
    monkeypatch.setattr(lowering, "merge_states", lambda shaped, carrier, axes, here, state: state)


def unmerged_block_by_block(monkeypatch: pytest.MonkeyPatch, plan: tp.Plan) -> None:
    """Blocks do."""
    found = changed(Merge, lambda step, _: replace(step, over=()))(plan.shards())
    monkeypatch.setattr(tp.Plan, "shards", lambda self: found)


def same_rows_twice(monkeypatch: pytest.MonkeyPatch, plan: tp.Plan) -> None:
    """The first turn reads what the second one reads."""
    views = feeding.views_of
    monkeypatch.setattr(feeding, "views_of", lambda slot, mesh, places, turn: views(slot, mesh, places, later(turn)))


def later(turn: dict[str, int]) -> dict[str, int]:
    return {axis: max(number, 1) for axis, number in turn.items()}


def a_lost_range(monkeypatch: pytest.MonkeyPatch, plan: tp.Plan) -> None:
    """The driver does not merge the last range."""
    merged = driver.merged_in_order
    monkeypatch.setattr(driver, "merged_in_order", lambda count, leaf, merge: merged(count - 1, leaf, merge))


FAULTS = {
    "plan.values": unmerged_on_the_mesh,
    "plan.blocks": unmerged_block_by_block,
    "plan.streamed": same_rows_twice,
    "plan.clustered": a_lost_range,
}


@pytest.mark.parametrize("law", FAULTS)
def test_every_embedding_rejects_its_mutant(law: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tp.fold(agg.Sum(), "row c -> c"), 13)
    FAULTS[law](monkeypatch, plan)
    jax.clear_caches()
    try:
        with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
            laws.assert_embeddings(plan, engine=client)
    finally:
        jax.clear_caches()


def test_every_embedding_has_a_mutant() -> None:
    from laws.embeddings import EMBEDDINGS

    assert set(FAULTS) == set(EMBEDDINGS) == set(ALL)
