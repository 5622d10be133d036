"""Where pieces of a tensor lie: layouts on meshes and in loops, and what leads from one to another.

Read `mesh_shape` and `time_axis` (a loop is an axis that no mesh has), then `layout`; then `changes` with `halo` (which
cells are `wanted`, and the `pieces` that they are put together from), `fewer`, `drift` and `drifting` for blocks of two
sizes and wide windows, and `hops`; then `way`, which finds them; `opening` last.
"""
