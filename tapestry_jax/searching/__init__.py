"""From a program to a plan: `tp.search`. Called `searching` since `tapestry_jax.search` is the function.

Read `problem`, then `evaluated` (what a candidate comes to; its memory is `guessed` before it is weighed), `space` and
`choices` (what may be chosen), `candidates` (from a choice to what would be written by hand) and `method`: what a
method is. They are in `finding` and in `exact`, by name in `methods`. `answering` takes the best of what they propose,
says it shortly, or says why there is none. `search` and `pareto` are the face; `answered` asks for one mesh, and
`question` reads what users write.
"""
