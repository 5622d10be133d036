"""Looking for a counterexample, telling it, storing it, and accepting it with a reason.

Read `search`, then `tokens` and `message`; `known` last.
"""
