"""The same schedule with its outermost loops turned by the host, over data that lies in files.

Room: `frozen` (what a job needs to go on, in a folder). `errors` is what all of it raises.
"""
