"""Every script of `examples/physics`: its order of convergence and its plan; its parts against SciPy and NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from tests.example_modules import EXAMPLES, modules_of
from tests.thoroughly import but

PHYSICS = EXAMPLES / "physics"
SIZES = {"heat": (8, 16), "wave": (16, 32), "shallow_water": (16, 32), "gray_scott": (8, 16), "elasticity": (8, 16)}


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    with modules_of(PHYSICS) as load:
        yield load


# Waves on water are a system of equations, as elasticity is.
@pytest.mark.parametrize("script", but(SIZES, "shallow_water"))
def test_physics_is_of_second_order(script: str, load: Any) -> None:
    errors, (order,) = load("equation").orders(load(script).problem, SIZES[script])
    assert 1.9 < order < 2.2, errors
    assert errors[-1] < 4e-3


@pytest.mark.parametrize("script", SIZES)
def test_physics_plans_are_proved_and_exchange_rims_alone(script: str, load: Any) -> None:
    plan = load("equation").plan_of(load(script).problem(8))
    kinds = {each.kind for each in plan.collectives()}
    assert kinds <= {"collective-permute", "all-reduce" if script == "elasticity" else "all-gather"}
    assert "collective-permute" in kinds


@pytest.mark.parametrize(
    "script", ["elasticity", *(pytest.param(s, marks=pytest.mark.thorough) for s in SIZES if s != "elasticity")]
)
def test_physics_planned_is_unplanned(script: str, load: Any) -> None:
    equation, problem = load("equation"), load(script).problem(8)
    plan = equation.plan_of(problem)
    found = plan.compile()(*plan.put(*problem.arguments))
    for ours, theirs in zip(found, problem.program(*problem.arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_physics_halos_are_as_deep_as_their_plans_say(load: Any) -> None:
    plan = load("equation").plan_of(load("heat").problem(16))
    steps, depth = 32, 4
    # Between two devices both directions are one permutation.
    assert sum(each.times for each in plan.collectives() if each.kind == "collective-permute") == steps // depth


def test_physics_elements_add_up_to_the_matrix_of_scipy(load: Any) -> None:
    elasticity, size = load("elasticity"), 6
    problem, k = elasticity.problem(size), elasticity.stiffness()
    ends = np.array(list(np.ndindex(size, size, *k.shape)))
    (ey, ex, q, p, c, b, a, d) = ends.T
    rows, columns = ((ey + b - 1, ex + a - 1, d), (ey + q - 1, ex + p - 1, c))
    inside = np.all([each >= 0 for pair in (rows, columns) for each in pair[:2]], axis=0)
    flat = [np.ravel_multi_index([each[inside] for each in pair], (size, size, 2)) for pair in (rows, columns)]
    matrix = coo_array((np.tile(k.ravel(), size**2)[inside], tuple(flat))).tocsc()
    expected = spsolve(matrix, elasticity.load_of(size).ravel()).reshape(size, size, 2)
    found, steps, converged = problem.program(*problem.arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert bool(converged) and int(steps) < 2 * size**2


def test_physics_patterns_are_those_of_numpy(load: Any) -> None:
    script = load("gray_scott")
    rng = np.random.default_rng(0)
    u, v = rng.uniform(size=(2, 6, 5)).astype(np.float32)
    found = script.pattern(3)(u, v)
    for _ in range(3):
        bends = [sum(np.roll(w, s, axis) for s in (-1, 1) for axis in (0, 1)) - 4 * w for w in (u, v)]
        used = u * v * v
        u, v = (
            u + script.SPREAD_U * bends[0] + script.FEED * (1 - u) - used,
            v + script.SPREAD_V * bends[1] + used - (script.FEED + script.KILL) * v,
        )
    for ours, theirs in zip(found, (u, v), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_physics_draws_on_request(load: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    load("equation").draw(tmp_path / "field.png", "a field", np.ones((4, 4, 2)))
    assert (tmp_path / "field.png").read_bytes()[:4] == b"\x89PNG"


def test_physics_page_lists_every_script() -> None:
    text = (EXAMPLES.parent / "docs" / "physics.md").read_text(encoding="utf-8")
    scripts = {path.name for path in PHYSICS.glob("*.py")} - {"equation.py"}
    assert scripts == {f"{name}.py" for name in SIZES}
    assert all(f"(../examples/physics/{name})" in text for name in scripts)
