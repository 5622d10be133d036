"""What a schedule tells beside its collectives: what a transfer encloses, and what operations cost."""

from __future__ import annotations

import pytest
from jax.sharding import AbstractMesh

from tapestry_jax.hlo.collectives import collectives_of
from tapestry_jax.hlo.cycles import costed, path_of
from tapestry_jax.hlo.text import read

MESH = AbstractMesh((8,), ("data",))
COST = '"window_config":{"estimated_cycles":"2153"}'
START = (
    "%s = (f32[256]{0}, f32[256]{0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1},{1,2}}, "
    'metadata={op_name="jit(f)/shard_map/iterate/while/body/iterate/diffuse/ppermute"}'
)
DONE = "%d = f32[256]{0} collective-permute-done(%s)"
BUSY = (
    "%b = f32[256]{0} fusion(%p), kind=kLoop, calls=%inner, "
    'metadata={op_name="jit(f)/transpose(jvp(f))/shard_map/iterate/while/body/iterate/diffuse/mul"}, '
    f"backend_config={{{COST}}}"
)
IDLE = "%t = (f32[256]{0}) tuple(%p)"


def module(*lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    only = f"  ROOT %q = f32[256]{{0}} parameter(0), backend_config={{{COST}}}"
    inner = f"%inner (q: f32[256]) -> f32[256] {{\n{only}\n}}\n"
    return f"HloModule jit_f, is_scheduled=true\n\n{inner}\nENTRY %main (p: f32[256]) -> f32[256] {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("lines", "enclosed"),
    [
        ((START, BUSY, DONE), 1),
        ((START, IDLE, BUSY, DONE), 1),
        ((START, DONE, BUSY), 0),
        ((BUSY, START, IDLE, DONE), 0),
        ((START, BUSY), 0),
    ],
)
def test_a_transfer_encloses_what_stands_between_its_ends(lines: tuple[str, ...], enclosed: int) -> None:
    (found,) = collectives_of(read(module(*lines)), MESH)
    assert (found.bytes, found.enclosed) == (1024, enclosed)


def test_cycles_belong_to_operations_and_not_to_the_inside_of_fusions() -> None:
    (found,) = costed(read(module(BUSY)), ["iterate", "iterate/diffuse", "diffuse"])
    assert (found.path, found.cycles, found.times, found.backward) == ("iterate/diffuse", 2153, 1, True)


@pytest.mark.parametrize(
    ("origin", "path"),
    [
        ("jit(f)/shard_map/decoder/0/mlp/dot_general", "decoder/0/mlp"),
        ("jit(f)/shard_map/decoder/0/mlp/while/body/closed_call/scale/mul", "scale"),
        ("jit(f)/jvp(jit(run))/shard_map/by 8 chunks of batch/while/body/add", "by 8 chunks of batch"),
        ("jit(f)/shard_map/mine/while/body/closed_call/theirs/mul", "mine/theirs"),
        ("", ""),
    ],
)
def test_origins_name_operations(origin: str, path: str) -> None:
    assert path_of(origin, ["decoder/0/mlp", "decoder", "scale", "by 8 chunks of batch"]) == path
