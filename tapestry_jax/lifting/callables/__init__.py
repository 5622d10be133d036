"""What is lifted, before it is traced.

Read `arguments`: a callable comes apart from the arrays that it holds; then `names` of its axes; `inputs`, of which one
may stand for several `layers`; `written`, what a call writes to modules, with `passed`, which finds what it does not;
`scopes`, where in a model an equation stands, and `place`, where in the source; `concrete` tells what
cannot be traced.
"""
