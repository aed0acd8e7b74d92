"""A board as a static site: one self-contained HTML page per board, and an index of them. No network, no server.

groups (what may be compared) | runs (files of an entry) < data (of a page) < build (HTML files)
"""
