"""How much memory a device needs, read off the traced program: nothing is compiled, and there are no arrays.

Read `program`, the operations as buffers see them; `read` finds them in a jaxpr with `primitives`, `scopes` tells
whose they are, `called` places what several calls share, `equations` says what compilers ask of one, and `needed`
drops what nobody reads. `compilers` are what each of them makes of the program. `buffers` says which values are there
at all, `lives` when; `blocks` which of them share a place, `packed` where the others lie. `liveness` is the most of
them, `predicted` what `plan.memory` gives.
"""
