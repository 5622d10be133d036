"""Reading collectives from HLO text: literal snippets in the forms that XLA prints on CPU, GPU and TPU."""

from __future__ import annotations

import pytest
from jax.sharding import AbstractMesh

from tapestry_jax.hlo.collectives import Found, compiled_collectives

MESH = AbstractMesh((2, 4), ("data", "model"))


def read(text):
    return [(each.kind, each.axes, each.bytes, each.times) for each in compiled_collectives(text, MESH)]


def module(*lines):
    body = "\n".join("  " + line for line in lines)
    return f"HloModule jit_f, is_scheduled=true\n\nENTRY %main.9 (p0: f32[4,8]) -> f32[4,8] {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", ("model",)),
        ("{{0,4},{1,5},{2,6},{3,7}}", ("data",)),
        ("{{0,1,2,3,4,5,6,7}}", ("data", "model")),
        ("{}", ("data", "model")),
        ("[2,4]<=[8]", ("model",)),
        ("[4,2]<=[2,4]T(1,0)", ("data",)),
        ("[1,8]<=[8]", ("data", "model")),
        # Neighbours in pairs: no set of axes of this mesh.
        ("[4,2]<=[8]", ("?",)),
        ("mesh['data'=2,'model'=4] {'model'}", ("model",)),
        ("mesh['data'=2,'model'=4] {'data','model'}", ("data", "model")),
        # The names of a mesh that XLA made itself, and parts of axes.
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", ("data",)),
        ("mesh['axis_0'=8] {'axis_0':(1)2}", ("data",)),
        ("mesh['axis_0'=8] {'axis_0':(2)4}", ("model",)),
        ("mesh['axis_0'=8] {'axis_0':(4)2}", ("?",)),
    ],
)
def test_replica_groups_are_mesh_axes(groups, axes):
    text = module(
        f"ROOT %all-reduce.1 = f32[4,8]{{1,0}} all-reduce(f32[4,8]{{1,0}} %p0), channel_id=1, replica_groups={groups}, "
        "use_global_device_ids=true, to_apply=%add"
    )
    assert read(text) == [("all-reduce", axes, 4 * 8 * 4, 1)]


def test_groups_of_one_device_are_no_communication():
    text = module(
        "ROOT %r = f32[4]{0} all-reduce(%p0), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add"
    )
    assert read(text) == []


def test_a_combined_all_reduce_adds_its_parts():
    text = module(
        "%ar = (f32[4,8]{1,0}, bf16[3]{0}, f32[]) all-reduce(%a, %b, %c), channel_id=1, replica_groups=[2,4]<=[8], "
        "use_global_device_ids=true, to_apply=%add"
    )
    assert read(text) == [("all-reduce", ("model",), 128 + 6 + 4, 1)]


def test_long_tuples_are_printed_with_comments():
    shapes = "f32[2]{0}, f32[2]{0}, f32[2]{0}, f32[2]{0}, f32[2]{0}, /*index=5*/f32[2]{0}"
    text = module(
        f"%ar = ({shapes}) all-reduce(%a, %b, %c, %d, %e, /*index=5*/%f), replica_groups=[2,4]<=[8], to_apply=%add"
    )
    assert read(text) == [("all-reduce", ("model",), 6 * 8, 1)]


def test_bytes_are_the_larger_of_operand_and_result():
    text = module(
        "%ag = f32[16,8]{1,0} all-gather(f32[4,8]{1,0} %p0), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}",
        "%rs = f32[1,8]{1,0} reduce-scatter(f32[4,8]{1,0} %p0), channel_id=2, replica_groups=[2,4]<=[8], "
        "use_global_device_ids=true, dimensions={0}, to_apply=%add",
        "%a2a = f32[4,8]{1,0} all-to-all(f32[4,8]{1,0} %p0), channel_id=3, replica_groups=[2,4]<=[8], dimensions={0}",
    )
    assert read(text) == [
        ("all-gather", ("model",), 16 * 8 * 4, 1),
        ("reduce-scatter", ("model",), 4 * 8 * 4, 1),
        ("all-to-all", ("model",), 4 * 8 * 4, 1),
    ]


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("f8e4m3fn[16,8]{1,0}", 128),
        ("f8e8m0fnu[16,8]{0,1:T(32,128)(4,1)S(1)}", 128),
        ("s4[16,8]{1,0:T(64,128)(8,1)E(4)S(1)}", 64),
        ("f4e2m1fn[5,3]{1,0:E(4)}", 8),
        ("u2[16,8]{1,0:E(2)}", 32),
        ("s4[16,8]{1,0}", 128),
        ("pred[16,8]{1,0}", 128),
        ("c128[16,8]{1,0}", 2048),
    ],
)
def test_the_bits_of_an_element_are_those_of_its_dtype(written: str, size: int):
    text = module(f"%ag = {written} all-gather(%p0), channel_id=1, replica_groups=[2,4]<=[8], dimensions={{0}}")
    assert read(text) == [("all-gather", ("model",), size, 1)]


def test_operands_and_results_of_a_start_may_be_a_tuple_and_what_follows_it():
    text = module(
        "%s0 = ((f32[2,8]{1,0}, s8[3]{0}), (f32[2,8]{1,0}, s8[3]{0})) all-reduce-start(%a, %b), channel_id=1, "
        "replica_groups=[2,4]<=[8], to_apply=%add",
        "%s1 = ((f32[4,8]{1,0}), f32[16,8]{1,0}) all-gather-start(%p0), channel_id=1, replica_groups=[2,4]<=[8]",
        "%s2 = ((f32[4,8]{1,0}), f32[1,8]{1,0}) reduce-scatter-start(%p0), channel_id=1, replica_groups=[2,4]<=[8]",
    )
    expected = [("all-reduce", 2 * 8 * 4 + 3), ("all-gather", 16 * 8 * 4), ("reduce-scatter", 4 * 8 * 4)]
    assert read(text) == [(kind, ("model",), size, 1) for kind, size in expected]


def test_an_all_to_all_of_a_tuple_adds_its_parts():
    # The CPU sends one operand to each device of the group.
    text = module(
        "%a2a = (s32[1,2]{1,0}, s32[1,2]{1,0}, s32[1,2]{1,0}, s32[1,2]{1,0}) all-to-all(%a, %b, %c, %d), channel_id=1, "
        "replica_groups=[2,4]<=[8]"
    )
    assert read(text) == [("all-to-all", ("model",), 4 * 2 * 4, 1)]


def test_permutes_name_the_axes_along_which_they_move():
    def permute(pairs):
        return module(f"%cp = f32[2,3]{{1,0}} collective-permute(%p0), channel_id=1, source_target_pairs={pairs}")

    assert read(permute("{{0,1},{1,2},{2,3},{4,5},{5,6},{6,7}}")) == [("collective-permute", ("model",), 24, 1)]
    assert read(permute("{{0,4},{1,5},{2,6},{3,7}}")) == [("collective-permute", ("data",), 24, 1)]
    assert read(permute("{{3,4}}")) == [("collective-permute", ("data", "model"), 24, 1)]
    assert read(permute("{}")) == []


def test_asynchronous_forms_count_once():
    # As GPUs print them: a start that also returns its operands, and a done.
    text = module(
        "%ar = f32[4,8]{1,0} all-reduce-start(f32[4,8]{1,0} %p0), channel_id=1, replica_groups=[2,4]<=[8], "
        "to_apply=%add",
        "%ard = f32[4,8]{1,0} all-reduce-done(f32[4,8]{1,0} %ar)",
        "%ag = (f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(f32[4,8]{1,0} %p0), channel_id=2, "
        "replica_groups=[2,4]<=[8], dimensions={0}",
        "%agd = f32[16,8]{1,0} all-gather-done((f32[4,8]{1,0}, f32[16,8]{1,0}) %ag)",
        "%two = ((f32[4,8]{1,0}, f32[2]{0}), (f32[16,8]{1,0}, f32[8]{0})) all-gather-start("
        "f32[4,8]{1,0} %p0, f32[2]{0} %q), channel_id=3, replica_groups=[2,4]<=[8], dimensions={0}",
        "%cp = (f32[2,3]{1,0}, f32[2,3]{1,0}, u32[], u32[]) collective-permute-start(f32[2,3]{1,0} %b), channel_id=4, "
        "source_target_pairs={{0,1},{1,0}}",
        "%cpd = f32[2,3]{1,0} collective-permute-done((f32[2,3]{1,0}, f32[2,3]{1,0}, u32[], u32[]) %cp)",
        "%rs = ((f32[4,8]{1,0}), f32[1,8]{1,0}) reduce-scatter-start(f32[4,8]{1,0} %p0), channel_id=5, "
        "replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add",
        "%rsd = f32[1,8]{1,0} reduce-scatter-done(((f32[4,8]{1,0}), f32[1,8]{1,0}) %rs)",
        "%aa = ((f32[4,8]{1,0}), f32[4,8]{1,0}) all-to-all-start(f32[4,8]{1,0} %p0), channel_id=6, "
        "replica_groups=[2,4]<=[8], dimensions={0}",
    )
    assert read(text) == [
        ("all-reduce", ("model",), 128, 1),
        ("all-gather", ("model",), 512, 1),
        ("all-gather", ("model",), 512 + 32, 1),
        ("collective-permute", ("model",), 24, 1),
        ("reduce-scatter", ("model",), 128, 1),
        ("all-to-all", ("model",), 128, 1),
    ]


def test_layouts_with_tiles_do_not_end_the_operands():
    # As TPUs print them.
    text = module(
        "%ar = f32[4,8]{1,0:T(4,128)} all-reduce(f32[4,8]{1,0:T(4,128)} %p0), channel_id=1, replica_groups=[2,4]<=[8], "
        'to_apply=%add, metadata={op_name="jit(f)/matmul/psum"}'
    )
    (found,) = compiled_collectives(text, MESH)
    assert found == Found("all-reduce", ("model",), 128, 1, "jit(f)/matmul/psum")
    assert str(found) == "all-reduce over model: 128 B, jit(f)/matmul/psum"


LOOPS = """HloModule jit_f

%inner_body.1 (a: (s32[], f32[4])) -> (s32[], f32[4]) {
  %ar.1 = f32[4]{0} all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[8], to_apply=%add
}

%inner_condition.1 (a: (s32[], f32[4])) -> pred[] {
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

%outer_body.2 (a: (s32[], f32[4])) -> (s32[], f32[4]) {
  %w.1 = (s32[], f32[4]{0}) while(%t), condition=%inner_condition.1, body=%inner_body.1, backend_config={"known_trip_count":{"n":"5"}}
  %ar.2 = f32[2]{0} all-reduce(%y), channel_id=2, replica_groups=[2,4]<=[8], to_apply=%add
}

%fused_computation.3 (p: f32[4]) -> f32[4] {
  %ag.3 = f32[16]{0} all-gather(%z), channel_id=3, replica_groups=[2,4]<=[8], dimensions={0}
}

ENTRY %main (p0: f32[4]) -> f32[4] {
  %w.2 = (s32[], f32[4]{0}) while(%t), condition=%inner_condition.1, body=%outer_body.2, backend_config={"known_trip_count":{"n":"3"},"known_init_step":{"init":"0","step":"1"}}
  %c.1 = f32[4]{0} call(%p0), to_apply=%fused_computation.3
  %c.2 = f32[4]{0} call(%c.1), to_apply=%fused_computation.3
}
"""  # noqa: E501


def test_trip_counts_of_nested_loops_multiply():
    assert read(LOOPS) == [
        ("all-reduce", ("model",), 16, 15),
        ("all-reduce", ("model",), 8, 3),
        ("all-gather", ("model",), 64, 2),
    ]


def test_other_instructions_are_left_alone():
    text = module(
        "%all-reduce-like = f32[4]{0} add(%all-reduce.1, %p0)",
        '%custom = f32[4]{0} custom-call(%p0), custom_call_target="all-reduce(x)"',
    )
    assert read(text) == []
