"""What a piece declares beside its signature, asked of it: it is run on a few numbers, in two ways that should agree.

Read `provenance`, whose code is asked; `cut`, what is run of a kernel on all of its cells and on boxes; `fewer`, at
which sizes, `shrunk`, the code of many cells run on few, and `draws`, with what and how often; then `boxed`, whether
boxes come to the whole, as far as what data choose (`combinators.choosing`) tells; `neutral`, folds beside cells that
hold declared neutral values; `merged`, states that a monoid merges in the ways that plans take; `pulled`, what boxes of
a kernel pull back, and `turning`, where data choose that; `standing`, kernels that are said to do what another does.
`running` runs them, those of `pallas` by its interpreter, `outside` beside the program that is traced; `slopes` is what
they pull back.
"""
