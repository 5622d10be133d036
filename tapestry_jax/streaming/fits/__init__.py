"""What a stream needs of memory.

Read `budget`, which adds it up, then `fitting`, which finds the chunks that fit, and `allowed`, the limits that
a process is under.
"""
