"""Many jobs of one program: nothing is compiled again, and nothing is left when the program is gone."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import monitoring

import tapestry_jax as tp
from combinators.graphs.computed import program_text
from tapestry_jax.streaming import known
from tests.forgotten import is_forgotten

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """What JAX has compiled, or read from its cache, since."""
    found = list[str]()

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event.endswith("backend_compile_duration"):
            found.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    yield found
    monitoring.unregister_event_duration_listener(listen)


def _centred() -> Any:
    @tp.program("row c -> row c")
    def centred(x: Any) -> Any:
        return x - tp.fold(tp.aggregators.Mean(), "row c -> c")(x)

    return centred


def _run(program: Any, rows: np.ndarray = X, size: int = 6) -> Any:
    return tp.stream(program, {"row": tp.chunks(size=size)}, rows).run()


def test_a_second_job_compiles_nothing_and_reads_its_own_rows(compiled: list[str]) -> None:
    program = _centred()
    np.testing.assert_allclose(_run(program), X - X.mean(0), atol=1e-6)
    assert compiled
    compiled.clear()
    np.testing.assert_allclose(_run(program, 3 * X + 1), 3 * X - 3 * X.mean(0), atol=1e-5)
    assert compiled == []


def test_other_chunks_shapes_and_options_of_jax_are_compiled(compiled: list[str]) -> None:
    program = tp.fold(tp.aggregators.Sum(), "row c -> c")
    _run(program)

    def again(**options: Any) -> int:
        compiled.clear()
        _run(program, **options)
        return len(compiled)

    assert again() == 0
    assert again(size=4) and again(rows=X[:18])
    with jax.default_matmul_precision("highest"):
        assert again()


def test_programs_that_look_alike_have_functions_of_their_own() -> None:
    """Kernels of one name may be other functions: a module was loaded again."""
    factor = [2.0]

    def program() -> Any:
        return tp.Map(_scaled_by(factor), "row c -> row c")

    np.testing.assert_allclose(_run(program()), 2 * X)
    factor[0] = 3.0
    np.testing.assert_allclose(_run(program()), 3 * X)


def test_what_a_kernel_reads_may_change_between_jobs(compiled: list[str]) -> None:
    factor = [2.0]
    program = tp.Map(_scaled_by(factor), "row c -> row c")
    np.testing.assert_allclose(_run(program), 2 * X)
    factor[0] = 3.0
    np.testing.assert_allclose(_run(program), 3 * X)
    compiled.clear()
    np.testing.assert_allclose(_run(program, X + 1), 3 * (X + 1))
    assert compiled == []


def test_constants_of_programs_are_told_apart() -> None:
    def text(constant: np.ndarray) -> str:
        return program_text(jax.jit(lambda x: x + constant).trace(X).jaxpr)

    assert text(X) == text(X.copy())
    assert len({text(X), text(X + 1), text(X[:1]), text(X.astype(np.int32))}) == 4


def _scaled_by(factor: list[float]) -> Callable[[Any], Any]:
    return lambda x: x * factor[0]


def test_what_was_known_goes_with_the_program() -> None:
    known_now = known._BY_PROGRAM  # pyright: ignore[reportPrivateUsage]

    def run() -> bool:
        before = len(known_now)
        program = tp.fold(tp.aggregators.Max(), "row c -> c")
        _run(program)
        assert len(known_now) == before + 1
        del program
        gc.collect()
        return len(known_now) == before

    assert is_forgotten(run)


def test_the_last_shapes_alone_are_known() -> None:
    program = tp.fold(tp.aggregators.Sum(), "row c -> c")
    graph = tp.trace(program, X)
    mesh = tp.mesh(data=1)
    schedules = [tp.plan(graph, mesh, {"row": tp.chunks(turns)}).schedule for turns in range(2, 13)]
    assert len({*schedules}) > 8
    first = known.functions_of(program, schedules[0], mesh)
    assert known.functions_of(program, schedules[0], mesh) is first
    for schedule in schedules[1:]:
        known.functions_of(program, schedule, mesh)
    assert known.functions_of(program, schedules[0], mesh) is not first


# The second is long enough to be reduced in levels, by an operation that JAX is given.
@pytest.mark.parametrize(
    ("aggregator", "rows", "size"),
    [
        (tp.aggregators.Mean(), X, 6),
        (tp.aggregators.Moments(2), np.ones((2 * 2048, 8), np.float32), 2048),
    ],
    ids=["short", "long"],
)
def test_many_jobs_of_one_program_leave_no_objects(aggregator: Any, rows: np.ndarray, size: int) -> None:
    program = tp.fold(aggregator, "row c -> c")
    # `PjitParams` is what JAX itself notes of each function that it has traced.
    kinds = ("JaxprEqn", "Job", "PjitParams", "Schedule")

    def held() -> Counter[str]:
        gc.collect()
        return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in kinds)

    def run() -> bool:
        for _ in range(2):
            _run(program, rows, size)
        before = held()
        for _ in range(4):
            _run(program, rows, size)
        return held() == before

    assert is_forgotten(run)


class _Schedule:
    """A key, whose owner may be held up where it is looked up."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before, self.platforms = before, ()

    def __hash__(self) -> int:
        self.before()
        return 0


def test_jobs_of_several_threads_wait_for_each_other() -> None:
    program, found = _centred(), list[Any]()
    others = threading.Thread(
        target=lambda: found.extend(known.functions_of(program, _as_schedule(_Schedule()), None) for _ in range(9))
    )
    looked_up = list[None]()

    def hold_up() -> None:
        looked_up.append(None)
        if len(looked_up) == 3:  # known once, looked up again, and not yet the last one
            others.start()
            others.join(0.1)

    schedule = _as_schedule(_Schedule(hold_up))
    known.functions_of(program, schedule, None)
    looked_up[:] = [None]
    assert known.functions_of(program, schedule, None) == {}
    others.join()
    assert found == [{}] * 9


def _as_schedule(schedule: Any) -> Any:
    return schedule
