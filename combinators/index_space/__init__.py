"""Index spaces: boxes, what is read of them, and the signatures and types that speak of them.

Read `axis`, `box` and `projection`; then `cover` and `marginals`; then `tokens`, `signature` with its `parser` and
`naming`; then `sizes` with `extent` and `boundary`; `tensor_type` and `usable` speak of arrays.
"""
