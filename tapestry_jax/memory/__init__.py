"""How much memory a device needs, read off the traced program: nothing is compiled, and there are no arrays.

Read `program`, the operations as buffers see them; `read` finds them in a jaxpr with `primitives`, `needed` drops what
nobody reads, and `rounded` halves what TPUs round. `buffers` says which values are there at all, `liveness` when;
`predicted` is what `plan.memory` gives.
"""
