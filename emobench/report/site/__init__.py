"""A board as a static site: one self-contained HTML page per board, and an index of them. No network, no server.

data (of groups, contrasts) | runs (curves, samples) < page (HTML) < build (files)
"""
