"""Recurrent layers: a cell repeated along a sequence, with its state fed back.

Read `cells`, then `rnn`.
"""
