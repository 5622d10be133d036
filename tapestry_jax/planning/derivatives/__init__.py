"""What depends on what: outputs on inputs, and gradients on values, read off jaxprs.

Read `dependence`, then `gradients`; `positions` reads the `grad` of users.
"""
