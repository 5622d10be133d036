"""Index spaces: boxes, what is read of them, and the signatures and types that speak of them.

Read `axis`, `box` and `projection`; then `cover` and `marginals`; then `operand`, the `parser` with its `tokens`,
`signature` and `naming`; then `sizes` with `extent` and `boundary`; `tensor_type` and `usable` speak of arrays.
"""
