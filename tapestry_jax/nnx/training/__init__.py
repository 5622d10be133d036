"""Training: a loss under a plan, its gradients and an optimizer's update as one program.

Read `trainer`, what users make, with `options`; then `program` (the loss of a plan, for batches of all sizes), `rows`
(what counts a batch), `microbatches`, `precision` and `results` (what a loss returns); `stepping`, one step; `fitting`
and `metrics`, the loop and what it adds up, with `progress` and `plots`; `saving`, checkpoints. `extras` are packages
that need not be there, `errors` is what goes wrong.
"""
