"""Mixtures of experts: tokens choose who transforms them.

Read `mixture`, the layer; `routing` says who is chosen and what that costs, `capacity` brings tokens to places of
experts and back, `dropless` transforms them where they are.
"""
