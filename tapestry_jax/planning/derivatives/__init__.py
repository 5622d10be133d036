"""What depends on what: outputs on inputs, and gradients on values, read off jaxprs.

Read `dependence`, then `gradients`; `linear` reads derivatives that users wrote, and `positions` their `grad`.
"""
