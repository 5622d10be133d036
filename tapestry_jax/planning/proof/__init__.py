"""The proof that a schedule computes its graph: what every slot holds, found anew from the graph and the cuts.

Read `prove`, then `ledger` with `holdings` and `pieces`; then `operations` with `needs`, `coverage`, `folds` and
`scans`; `changed` for changes of layout; `loops`, `turns` and `repeats` for loops, `outside` for what ends behind them.
`site` is where in a program a step stands.
"""
