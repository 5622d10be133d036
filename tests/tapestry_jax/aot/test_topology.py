"""Machines that are not here: names, and what is said where a compiler is missing. What compilers say: tests/aot."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp

GRAPH = tp.trace(tp.einsum("i k, k n -> i n"), *(jax.ShapeDtypeStruct((8, 8), "float32"),) * 2)


@pytest.mark.parametrize(
    "name",
    [
        "v9:2x4",
        "v5e",
        "v5e:",
        "v5e:2",
        "v5e:0x4",
        "v5e:2x4x1",
        "v5p:2x2",
        "h100:8",
        "h100:2x2x2",
        "h100:9999x9999",
        "",
        8,
        None,
    ],
)
def test_unknown_machines_list_the_known_ones(name: Any) -> None:
    with pytest.raises(tp.MeshError, match="no compiler here knows this machine") as caught:
        tp.topology(name, data=8)
    assert "v5p:8x8x8" in str(caught.value) and "h100:8x8" in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("v5e:2x4", "libtpu"), ("h100:1x8", "jax-cuda12-pjrt")])
def test_a_missing_compiler_is_told_with_its_installation(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tp.MeshError, match=f"comes with the package {package}") as caught:
        tp.topology(name, data=8)
    assert "pip install 'tapestry-jax[aot]'" in str(caught.value)


@pytest.mark.parametrize("size", [0, -2, 2.5, "8", True])
def test_sizes_are_whole_numbers(size: Any) -> None:
    with pytest.raises(tp.MeshError):
        tp.topology("v5e:2x4", data=size)


def test_compile_only_says_what_this_machine_compiles(mesh2x4: Any) -> None:
    plan = tp.plan(GRAPH, mesh2x4, {"i": "data", "k": "model"})
    seen = plan.compile_only(grad=True)
    assert seen.sent == seen.predicted_sent and ("all-reduce", ("model",)) in seen.sent
    assert seen.memory.arguments > 0 and seen.memory.total >= seen.memory.arguments
    # CPUs leave temporaries out of what they call the peak.
    assert seen.memory.peak == seen.memory.arguments + seen.memory.results + seen.memory.temporaries
    assert seen.memory.temporaries > 0 and f"{seen.memory.peak:,} B" in str(seen)
    assert seen.cycles is None and "cycles" not in str(seen)
    assert "HloModule" in seen.hlo and len(str(seen).splitlines()) >= 4


def test_compile_only_asks_for_devices() -> None:
    plan = tp.plan(GRAPH, jax.sharding.AbstractMesh((2,), ("data",)), {"i": "data"})
    with pytest.raises(tp.MeshError, match="abstract mesh"):
        plan.compile_only()


def test_compile_only_asks_for_the_axes_of_the_plan(mesh8: Any) -> None:
    plan = tp.plan(GRAPH, jax.sharding.AbstractMesh((2,), ("model",)), {"i": "model"})
    with pytest.raises(tp.MeshError, match="the mesh has no axis `model`"):
        plan.compile_only(mesh8)


def test_compile_only_plans_again_for_another_size(mesh8: Any) -> None:
    plan = tp.plan(GRAPH, jax.sharding.AbstractMesh((2,), ("data",)), {"k": "data"})
    seen = plan.compile_only(mesh8)
    assert seen.machine.endswith("x 8") and seen.sent == seen.predicted_sent == {("all-reduce", ("data",)): 256}


def test_compile_only_refuses_another_platform(mesh8: Any) -> None:
    plan = tp.plan(GRAPH, mesh8, {"i": "data"}, platforms="cuda")
    with pytest.raises(tp.PlanError, match="planned for cuda, and these devices are cpu"):
        plan.compile_only()


@pytest.mark.parametrize(
    "options", [{"no_such_option": True}, {"xla_dump_hlo_as_text": "maybe"}, {"xla_dump_hlo_as_text": [1]}, {1: True}]
)
def test_compile_only_refuses_options_that_the_compiler_does_not_know(options: Any, mesh8: Any) -> None:
    with pytest.raises(tp.PlanError, match="has no such option, or it takes no such value"):
        tp.plan(GRAPH, mesh8, {"i": "data"}).compile_only(compiler_options=options)


def test_machines_without_known_options_have_none(mesh8: Any) -> None:
    plan = tp.plan(GRAPH, mesh8, {"k": "data"})
    abstract = tp.plan(GRAPH, jax.sharding.AbstractMesh((8,), ("data",)), {"k": "data"})
    assert plan.compiler_options == abstract.compiler_options == {}
    given = plan.compile_only(compiler_options={"xla_dump_hlo_as_text": False})
    assert given.sent == plan.compile_only(compiler_options={}).sent


def test_a_program_that_is_too_large_is_told_in_our_words(mesh8: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry_jax.aot import compile_only

    class Refuses:
        jaxpr = jax.make_jaxpr(lambda x: x)(1.0)

        def lower(self) -> Refuses:
            return self

        def compile(self, **options: Any) -> None:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Ran out of memory. Used 707.65G of 95.74G hbm. Exceeded hbm capacity by 611.91G."
            )

    monkeypatch.setattr(compile_only, "trace_pinned", lambda *args: Refuses())
    with pytest.raises(tp.PlanError, match=r"it needs 707.65G on a device that has 95.74G"):
        tp.plan(GRAPH, mesh8, {"i": "data"}).compile_only()


def test_devices_of_this_machine_run(mesh8: Any) -> None:
    ones = np.ones((8, 8), np.float32)
    assert np.asarray(tp.plan(GRAPH, mesh8, {"i": "data"}).compile()(ones, ones)).max() == 8
