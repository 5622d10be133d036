"""What the subcommands of `tapestry` do; `tapestry_jax/command.py` reads the words.

Read `piece`, then `aot`.
"""
