"""From a schedule to one SPMD program.

Read `compiled` with `boundary`, then `program`, which runs the steps; `on_device`, `padding`, `exchange` and `time` do
them. `transfer` brings arrays in and out, `pinned` is the program as predictions speak of it, `devices` what a mesh has
to have, `compiler_options` what hides more transfers on its machine.
"""
