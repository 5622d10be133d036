"""Schedule to schedule: what is computed again, gathered where it is used, done more than once.

`remat`, then `regather`, which knows of it; `stopped` marks loops that no gradient goes through, as prediction tells;
`repeats` stands alone, and so does `written_out`: repetitions turn by turn, for whoever takes their turns elsewhere.
"""
