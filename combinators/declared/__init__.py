"""Whether a kernel does what its signature says, as far as its program tells.

Read `flow`, what is known of a value of the program; `rules`, what primitives do with it; `followed`, the program from
end to end; `numbers`, those by which it counts cells; then `check`, which holds it against the signature. `derivative`
does so with a derivative that somebody wrote, of whose program `backward` and `parts` tell. `settled` says of which
kernels boxes come to the whole; the others are run (`combinators.claims`), where `programs` of boxes are not one, as
far as they are `runnable`, on operands that are `drawn` and meet their `preconditions`; what two runs give is
`compared`. `range` says which floats a program computes with.
"""
