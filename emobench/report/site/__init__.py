"""A board as a static site: one self-contained HTML page per board, and an index of them. No network, no server.

runs (files of an entry) < data (the groups and entries of a page) < build (HTML files)
"""
