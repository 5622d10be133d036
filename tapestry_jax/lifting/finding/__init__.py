"""Many steps that are one: chains cell by cell, attention that is written out, equal layers.

Read `fuse`; then `attention` and `softmax`, which compare `expressions`, what a value is cell by cell; `product` is a
`dot_general` whose axes are told. `unmerged` keeps axes apart that are merged for a while.
`repeats` makes loops of steps that are the `same`.
"""
