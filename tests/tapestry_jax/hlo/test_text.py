"""The reader of HLO: what is printed on several lines is one instruction."""

from __future__ import annotations

from tapestry_jax.hlo.text import read
from tapestry_jax.hlo.trips import executions

TEXT = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%body (p.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p.1 = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p.1), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8]{0} get-tuple-element(%p.1), index=1
  %call = f32[8]{0} custom-call(%x), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 256, \\"block_kv\\": 256}"
}}, metadata={op_name="jit(f)/attention/splash"}
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %call)
}, execution_thread="main"

%condition (p.2: (s32[], f32[8])) -> pred[] {
  %p.2 = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%p.2), index=0
  %seven = s32[] constant(7)
  ROOT %less = pred[] compare(%j, %seven), direction=LT
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]{0}) tuple(%zero, %a)
  %loop = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body
  ROOT %out = f32[8]{0} get-tuple-element(%loop), index=1
}
"""


def test_what_a_kernel_tells_of_itself_on_lines_of_its_own_belongs_to_its_instruction() -> None:
    module = read(TEXT)
    assert {name: len(listed) for name, listed in module.computations.items()} == {"body": 7, "condition": 4, "main": 5}
    call = module.find("body", "call")
    assert call is not None
    assert call.origin == "jit(f)/attention/splash"
    # The loop behind it is still seen, with its turns.
    assert executions(module)["body"] == 7
