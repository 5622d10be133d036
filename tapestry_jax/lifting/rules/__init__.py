"""One rule for each family of primitives: which axes are one dimension, and which kernel is right for a block.

They are written with `named`. Read `cellwise` with `custom`, `views` with `reshapes`, `contractions`, `reductions` with
`running`, `inlined`, `unknown`; then `along`, `lookups`, `keys`, `slices` and `windows`. The rest is `control`.
"""
