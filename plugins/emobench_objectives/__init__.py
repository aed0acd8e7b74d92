"""The built-in objectives, one file each, with the paper's equation in it.

They import nothing but `emobench`, as a stranger's plugin would.
"""
