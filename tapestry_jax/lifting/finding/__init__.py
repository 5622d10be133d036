"""Many steps that are one: chains cell by cell, and attention that is written out.

Read `fuse`; then `attention` and `softmax`, which compare `expressions`, what a value is cell by cell; `product` is a
`dot_general` whose axes are told.
"""
