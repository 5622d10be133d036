"""Schedule to schedule: what is gathered where it is used, and what is done more than once.

`regather` and `repeats` stand alone.
"""
