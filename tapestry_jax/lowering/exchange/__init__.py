"""What devices send each other: collectives, changes of layout, halos, and folds over the mesh.

Read `collectives`, then `convert` with `halo` and `alike`; then `fold` with `ordered`, `cells`,
`neutral`, `merging` and `left_out`.
"""
