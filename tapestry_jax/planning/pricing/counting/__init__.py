"""What a kernel computes and moves, counted from its program; nothing is compiled.

Read `counts` (the result), then `traced` (a kernel's program, or its gradient's), `primitives` (what compilers make of
JAX's), `opened` (the program with its calls opened), `arithmetic` (FLOP of an equation), `fused` (what goes to memory),
`kept` (what the forward pass leaves there), `passes` (what TPUs take beside) and `count` (all of it); `resized` is the
same program at other sizes, and `alike` says whether two are one.
"""
