"""Layers of images, channels last: convolutions and pooling, whose windows are maps.

Read `windows`, which cells are read under every way of padding, then `conv`, `conv_transpose` and `pooling`.
"""
