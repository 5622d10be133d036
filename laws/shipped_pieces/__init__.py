"""What the library ships, as laws take it; `laws/shipped.py` puts it together.

`aggregators` and `arrows` stand alone.
"""
