"""The one kind of leaf that graphs hold: a signature, a kernel, perhaps a monoid; at given shapes, on blocks.

Read `operation` with its `rules`, and `shaped` with `results` and `states`, then `execute` with `binding` and `cells`;
`boxes` holds a kernel against parts of its index space; `dense` and `ready` choose among kernels, `outside` finds those
that pad by themselves; `widening` and `compositions` make one operation of another; `json` stores them.
"""
