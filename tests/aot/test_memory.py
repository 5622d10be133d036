"""Memory as predicted, held to what the compilers allot: rows of the gallery at their own sizes."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import tapestry_jax as tp
from benchmarks.memory_cases import TRANSFORMERS, cases
from tests.example_modules import GALLERY, modules_of


@pytest.fixture(scope="module")
def gallery() -> Any:
    with modules_of(GALLERY) as load:
        yield load


@pytest.mark.parametrize(
    ("machine", "row", "number"),
    [
        ("h100:1x8", "data_parallelism", 0),  # a product in parts
        ("h100:1x8", "ring_attention", 0),  # a softmax
        ("h100:1x8", "fsdp", 0),  # products in parts, in a loop
        # All-to-alls; of newer versions 0.78.
        *([("h100:1x8", "pencil_fft", 0)] if jax.__version_info__ < (0, 11) else []),
        ("v5e:2x4", "fsdp", 1),  # arguments in tiles
    ],
    indirect=["machine"],
)
def test_what_is_predicted_is_allotted(row: str, number: int, machine: str, gallery: Any) -> None:
    example = gallery(row).example()
    planned = example.plans[number]
    devices = list(tp.topology(machine, all=8).devices.flat)
    graph = tp.trace(example.program, *example.arguments)
    seen = tp.plan(graph, tp.mesh(devices, **planned.mesh), planned.entries, **planned.options).compile_only()
    said = seen.memory.arguments + seen.memory.results + seen.memory.temporaries
    assert seen.needed.total == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize("machine", ["h100:1x8"], indirect=True)
def test_parameters_of_a_layer_are_gathered_at_once(machine: str) -> None:
    seen = TRANSFORMERS["stack, FSDP, remat"](tuple(tp.topology(machine, all=8).devices.flat)).compile_only()
    said = seen.memory.arguments + seen.memory.results + seen.memory.temporaries
    assert seen.needed.total == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize(("machine", "row"), [("v5p:2x2x2", "stack"), ("h100:1x8", "stack")], indirect=["machine"])
def test_what_is_alive_at_once_is_predicted_at_full_sizes(machine: str, row: str) -> None:
    seen = cases(full=True)[row](tuple(tp.topology(machine, all=8).devices.flat)).compile_only()
    assert seen.needed.total == pytest.approx(seen.memory.peak, rel=0.1)
    assert seen.memory.arguments < seen.memory.peak <= seen.memory.total


@pytest.mark.parametrize("dtype", ["int4", "float8_e4m3fn"])
def test_what_takes_a_byte_or_less_is_counted_as_it_lies(dtype: str, machine: str) -> None:
    rows = tp.trace(tp.Map(lambda x: x, "b c -> b c"), tp.TensorType({"b": 1024, "c": 256}, dtype))
    plan = tp.plan(rows, tp.topology(machine, data=2, model=4), {"b": "model"}, outputs={"y": {}})
    seen, cells = plan.compile_only(), 1024 * 256 // (2 if dtype == "int4" else 1)
    assert dict(seen.predicted_sent) == dict(seen.sent) == {("all-gather", ("model",)): cells}
    assert (seen.memory.arguments, seen.memory.results) == (seen.needed.arguments, seen.needed.results)
    assert (seen.needed.arguments, seen.needed.results) == (cells // 4, cells)
