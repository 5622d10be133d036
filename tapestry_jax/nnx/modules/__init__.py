"""What a module is: a Flax module that is an arrow, whose parameters are inputs of the graphs it is traced into.

Read `module`, then `arrow`; `symbolic` puts values in the place of parameters and takes types of them, `written`
refuses what a forward pass writes, `forgetting` what would decode wrongly beside a cache, of what `mattering` finds to
reach a result, `plain` lifts calls of layers that are Flax's own. `sequential` is the plainest module of modules,
`sequence_layer` what layers of positions share.
"""
