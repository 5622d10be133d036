"""One plan for arguments of other sizes: the last batch of an epoch, other lengths.

Read `planned`, what users call, then `replan`, the plan of another graph that asks for the same, and `fewer`, for
fewer chunks of less.
"""
