"""The built-in objectives, one file each, with the paper's equation in it.

They import only `emobench`, like a third-party plugin.
"""
