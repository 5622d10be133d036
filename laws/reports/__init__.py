"""The laws of many pieces one line each, and the catalogue as a page.

`survey` and `page` stand alone.
"""
