"""Which collectives the TPU compiler sums: what libtpu 0.0.42.1 said of single ones, for eight devices of a v5e."""

from __future__ import annotations

import jax
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.planning.prediction.platform import as_compiled

# One device's part in float32, the dimension that is cut first.
GATHERED = [(128,), (256,), (1152,), (4096,), (1, 128), (16, 8), (1024, 8)]
GATHERS_SUMMED = [(100, 1), (8,), (64,), (127,), (129,), (200,), (1000,), (1025,), (65537,), (524289,)]
# The first as it is where nobody flattens it; of (1, 7) two were summed as one vector, and one was gathered.
GATHERS_EITHER = [(1, 8), (1, 7), (5, 24)]
SCATTERED = [(8, 1024), (16, 512), (32, 256), (64, 128), (16, 1024), (32, 1024), (128, 64), (64, 512)]
SCATTERS_SUMMED = [(8,), (1024,), (131072,), (1, 8), (16, 2), (2, 8, 4), (8, 8, 1)]
# Of the first six the last three were scattered, and so was (16, 64) over two and four devices.
EITHER = [(1, 128), (4, 128), (8, 64), (2, 8, 8), (2, 8, 16), (4, 16, 8)]
EITHER += [(8, 128), (16, 64), (128, 8), (8, 256), (4, 1024), (64, 64), (4, 512), (8, 512)]


def _found(kind: str, part: tuple[int, ...], machine: str = "TPU v5 lite") -> Collective:
    size = 8 * 4
    for extent in part:
        size *= extent
    return as_compiled(Collective(kind, ("data",), size, "path", part=part), "tpu", machine)


@pytest.mark.parametrize(
    ("kind", "parts", "ran", "perhaps"),
    [
        ("all-gather", GATHERED, "all-gather", ""),
        ("all-gather", GATHERS_SUMMED, "all-reduce", ""),
        ("all-gather", GATHERS_EITHER, "all-gather", "all-reduce"),
        ("reduce-scatter", SCATTERED, "reduce-scatter", ""),
        ("reduce-scatter", SCATTERS_SUMMED, "all-reduce", ""),
        ("reduce-scatter", EITHER, "reduce-scatter", "all-reduce"),
    ],
)
def test_collectives_are_predicted_as_they_were_compiled(
    kind: str, parts: list[tuple[int, ...]], ran: str, perhaps: str
) -> None:
    for part in parts:
        found = _found(kind, part)
        assert (found.kind, found.perhaps) == (ran, perhaps), part


def test_a_v5p_may_sum_what_others_scatter() -> None:
    assert {_found("reduce-scatter", part, "TPU v5").perhaps for part in SCATTERED} == {"all-reduce"}


@pytest.mark.parametrize(("devices", "perhaps"), [(32, ""), (64, "all-reduce")])
def test_what_many_devices_gather_may_be_summed(devices: int, perhaps: str) -> None:
    """`v5p:4x4x4` sums every gather over its 64 devices, `v5e:8x8` that of 64 x 8 x 128, not that of 64 x 4096."""
    gathered = Collective("all-gather", ("data",), devices << 20, "path", part=(64, 4096))
    found = as_compiled(gathered, "tpu", "TPU v5", devices)
    assert (found.kind, found.perhaps) == ("all-gather", perhaps)


def test_other_platforms_run_what_the_program_says() -> None:
    found = Collective("all-gather", ("data",), 256, "path", part=(8,))
    assert as_compiled(found, "cuda") is found and as_compiled(found, "cpu") is found


def test_gathers_and_scatters_of_a_plan_know_the_part_of_a_device() -> None:
    x, w = tp.TensorType({"i": 16, "k": 24}), tp.TensorType({"k": 24, "n": 40})
    graph = tp.trace(lambda x, w: tp.einsum("i k, k n -> i n")(x, w), x, w)
    mesh = jax.sharding.AbstractMesh((8,), ("data",))
    stored = tp.plan(graph, mesh, {"i": "data"}, inputs={"w": {"n": "data"}})
    parts = {(each.kind, each.part) for each in stored.collectives(grad=True)}
    assert {("all-gather", (5, 24)), ("reduce-scatter", (5, 24))} <= parts
