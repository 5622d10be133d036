"""Schedule to schedule: what is computed again, gathered where it is used, done more than once.

`remat`, then `regather`, which knows of it; `stopped` marks loops that no gradient goes through, as prediction tells;
`repeats` stands alone.
"""
