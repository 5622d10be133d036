"""What the compilers of some platforms make of a program before they think of memory.

Read `added`, which all of them do, and `cpu`: `library` says which operations are one kernel there, `parts` what
all-to-alls cut, `order` when kernels run, `widened` what lies there in float32. `gpu` is what is known of GPUs: `split`
says which products are cut into parts, `arrived` what is turned before it is gathered, `combined` which collectives are
sent as one, and `scheduled` when kernels run. `tpu` is what is known of TPUs: `rounded` halves what they
round, and `tiles` pads what they are given. Both write what is `kept`, since several would compute it from two arrays.
"""
