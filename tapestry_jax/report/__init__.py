"""Tables that explain a plan.

Read `alive`, the bytes that are alive at once, then `explain`; `table` lays them out.
"""
