"""Tables that explain a plan.

Read `explain`; `table` lays it out.
"""
