"""Tables that explain a plan.

`explain` stands alone.
"""
