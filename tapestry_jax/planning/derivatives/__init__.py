"""What depends on what: outputs on inputs, and gradients on values, read off jaxprs.

Read `dependence`, then `gradients`; `linear` reads derivatives that users wrote, `range` which floats a program
computes with, and `positions` their `grad`.
"""
