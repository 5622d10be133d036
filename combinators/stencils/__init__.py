"""Stencils: maps that are written as a function of one cell and its neighbours.

Read `neighbours`, what the function is given on blocks, then `boundary`, what is answered outside, and `stencil`.
"""
