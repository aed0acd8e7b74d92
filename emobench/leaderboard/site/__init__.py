"""A board as a static site: one self-contained HTML page per board, and an index of them. No network, no server.

data (entries -> plain columns) | comparisons | runs (curves and samples) < page (libraries, template) < build (files)
"""
