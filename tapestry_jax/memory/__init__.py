"""How much memory a device needs, read off the traced program: nothing is compiled, and there are no arrays.

Read `program`, the operations as buffers see them; `read` finds them in a jaxpr with `primitives`, `needed` drops what
nobody reads, and `rounded` halves what TPUs round. `cpu` is what XLA for CPUs makes of it: `equations` says what its
library of kernels knows, `library` which operations are one kernel, `parts` what all-to-alls cut, `order` when they
run. `buffers` says which values are there at all, `lives` when; `blocks` which of them share a place, `packed` where
the others lie. `liveness` is the most of them, `predicted` what `plan.memory` gives.
"""
