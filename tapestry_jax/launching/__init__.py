"""A group of processes on this machine that JAX joins to one, watched and started again: `tapestry launch`.

Read `launch` (what is asked for), `environment` (what each process is told), `guardian` (a process that outlives the
supervisor, and ends the group), `group` (processes, started and ended together), `output` (their lines, with the number
of the rank), `heartbeat` (how a rank says that it lives) and `supervise` (the loop: who ended, who is stuck, and then).
`insisting` repeats an interruption that a callback of Python swallows.
"""
