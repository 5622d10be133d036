"""What a schedule tells beside its collectives: what a transfer encloses, and what operations cost."""

from __future__ import annotations

import pytest
from jax.sharding import AbstractMesh

from tapestry_jax.hlo.collectives import collectives_of
from tapestry_jax.hlo.cycles import costed, path_of, unestimated
from tapestry_jax.hlo.overlap import enclosed
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
INNER = (
    "%inner (q: f32[256]) -> f32[256] {\n  %q = f32[256]{0} parameter(0)\n"
    f"  ROOT %r = f32[256]{{0}} negate(%q), backend_config={{{COST}}}\n}}\n"
)
CHAINED = (
    "%{name} (q: f32[32]) -> f32[256] {{\n  %q = f32[32]{{0}} parameter(0)\n  %n = f32[32]{{0}} negate(%q)\n"
    "  %g = f32[256]{{0}} all-gather(%n), replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{0}}, "
    'frontend_attributes={{chain_id="0"}}\n'
    '  ROOT %c = f32[256]{{0}} custom-call(%g), custom_call_target="{target}"\n}}\n'
)
BEGINS, GOES_ON, ENDS = (
    f"%{name[0]}x = f32[256]{{0}} fusion(%p), kind=kCustom, calls=%{name}, backend_config={{{COST}}}"
    for name in ("begins", "goes_on", "ends")
)
MOVING = "%m = f32[256]{0} fusion(%p), kind=kLoop, calls=%moving"
COUNTER = "%n = s32[] add(%i, %j)"
COPY = "%k = f32[256]{0} copy(%p)"
PLACE = '%a = f32[256]{0} custom-call(), custom_call_target="AllocateBuffer"'
KERNEL = '%a = f32[256]{0} custom-call(%p), custom_call_target="tpu_custom_call"'
LOOP = '%w = f32[256]{0} while(%p), condition=%none, body=%loop, backend_config={"known_trip_count":{"n":"5"}}'
CALLS = (
    "%s = ((f32[256]{0}, token[]), f32[32]{0}) call-start(%p, %a), "
    'async_execution_thread="sparsecore", to_apply=%other_core'
)
OTHER_CORE = (
    "%other_core (q: f32[256]) -> f32[32] {\n  %q = f32[256]{0} parameter(0)\n"
    "  ROOT %r = f32[32]{0} reduce-scatter(%q), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, to_apply=%none\n}\n"
)
PREPARES = '%a = token[] custom-call(), custom_call_target="PrepareAsyncCallDone"'
IDLE = "%t = (f32[256]{0}) tuple(%p)"


def module(*lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    inner = INNER.replace("ROOT %r", "%r").replace("negate", "copy").replace("%inner", "%moving")
    inner += INNER + CHAINED.format(name="begins", target="AsyncCollectiveStart")
    inner += CHAINED.format(name="goes_on", target="Other") + CHAINED.format(name="ends", target="AsyncCollectiveDone")
    inner += "%loop (w: f32[256]) -> f32[256] {\n" + BUSY.replace("%b =", "  ROOT %b =") + "\n}\n"
    return f"HloModule jit_f, is_scheduled=true\n\n{inner}\nENTRY %main (p: f32[256]) -> f32[256] {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("lines", "enclosed", "cycles"),
    [
        ((START, BUSY, DONE), 1, 2153),
        ((START, IDLE, BUSY, DONE), 1, 2153),
        ((START, DONE, BUSY), 0, 0),
        ((BUSY, START, IDLE, DONE), 0, 0),
        ((START, BUSY), 0, 0),
        ((START, MOVING, COUNTER, COPY, PLACE, DONE), 0, 0),
        ((START, KERNEL, DONE), 1, 0),
        ((START, LOOP, DONE), 1, 5 * 2153),
    ],
)
def test_a_transfer_encloses_what_computes_between_its_ends(lines: tuple[str, ...], enclosed: int, cycles: int) -> None:
    (found,) = (each for each in collectives_of(read(module(*lines)), MESH) if each.kind == "collective-permute")
    assert (found.bytes, found.enclosed, found.cycles) == (1024, enclosed, cycles)


@pytest.mark.parametrize(
    ("lines", "enclosed"), [((BEGINS, GOES_ON, BUSY, ENDS), 2), ((BEGINS, MOVING, ENDS), 0), ((BEGINS, BUSY), 0)]
)
def test_a_gather_that_runs_in_several_fusions_is_sent_once(lines: tuple[str, ...], enclosed: int) -> None:
    (found,) = collectives_of(read(module(*lines)), MESH)
    assert (found.kind, found.bytes, found.enclosed) == ("all-gather", 1024, enclosed)


@pytest.mark.parametrize(("between", "enclosed"), [((BUSY,), 1), ((PREPARES,), 0), ((), 0)])
def test_a_collective_on_another_core_encloses_what_its_call_encloses(between: tuple[str, ...], enclosed: int) -> None:
    ends = "%d = f32[32]{0} call-done(%s)"
    text = module(CALLS, *between, ends).replace("\nENTRY", f"\n{OTHER_CORE}\nENTRY")
    (found,) = (each for each in collectives_of(read(text), MESH) if each.kind == "reduce-scatter")
    assert (found.kind, found.bytes, found.enclosed) == ("reduce-scatter", 1024, enclosed)


def test_every_computation_is_looked_at_by_itself_and_updates_end_nothing() -> None:
    update = "%u = f32[256]{0} collective-permute-update(%s)"
    body = "\n".join(f"  {line}" for line in (START, BUSY, update, BUSY.replace("%b", "%c"), DONE))
    text = module(START, BUSY, DONE).replace("\nENTRY", f"\n%other (p: f32[256]) -> f32[256] {{\n{body}\n}}\n\nENTRY")
    found = {where: between.kernels for (where, _), between in enclosed(read(text)).items()}
    assert found == {"other": 2, "main": 1}


def test_what_was_sent_from_the_start_is_so_behind_an_update() -> None:
    update = "%u = f32[256]{0} collective-permute-update(%s)"
    text = module(START, BUSY, update, BUSY.replace("%b", "%c"), DONE.replace("(%s)", "(%u)"))
    assert [between.kernels for between in enclosed(read(text)).values()] == [2]


def test_what_another_core_is_given_late_is_sent_from_then_on() -> None:
    start = '%s = ((), (), (s32[1]{0})) call-start(), async_execution_thread="sparsecore", to_apply=%sums'
    update = "%u = ((f32[2048]{0}), f32[256]{0}) call-update(%s, %p)"
    done = "%d = f32[256]{0} call-done(%u)"
    lines = (start, BUSY, update, BUSY.replace("%b", "%c"), BUSY.replace("%b", "%e"), done)
    assert [between.kernels for between in enclosed(read(module(*lines))).values()] == [2]


def test_cycles_belong_to_operations_and_not_to_the_inside_of_fusions() -> None:
    (found,) = costed(read(module(BUSY)), ["iterate", "iterate/diffuse", "diffuse"])
    assert (found.path, found.cycles, found.times, found.backward) == ("iterate/diffuse", 2153, 1, True)


def test_kernels_without_an_estimate_are_told() -> None:
    assert unestimated(read(module(BUSY, KERNEL, PLACE))) == 1


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
