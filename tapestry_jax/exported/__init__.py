"""A plan in the words of plain JAX, for who keeps `jax.jit`: shardings of arguments, results and values, axis rules.

Read `specs`, what is handed out, then `partition_specs`, which makes it of a schedule: `rules` are logical axes with
the mesh axes they lie over, `unsaid` lists what no `PartitionSpec` says.
"""
