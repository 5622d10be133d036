"""Recurrent layers: a cell repeated along a sequence, and linear state spaces.

Read `recurrence`, what they share, `cells`, then `rnn` with the states of `carries`; `state_space` is linear, and a
scan, as is `mamba`, whose steps depend on the input.
"""
