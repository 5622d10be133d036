"""What the subcommands of `tapestry` take and do, each in the file of its name; `tapestry_jax/command.py` finds them.

Read `piece` and `planned`, which read what a command line names, then `explain`, `verify`, `cost`, `why`, `diff` and
`show`, which ask a plan, `search`, which finds one, `aot`, which asks compilers, `train`, which trains as a file says
(`config`), `launch`, which starts and watches processes, `fabric`, which looks after named tensors, and `laws`.
"""
