"""Boards that several people share: in a folder or a data set of the hub.

`share.py` moves what is new, `merge.py` says what that is, `digests.py` lists and signs it, and each kind of place is a
file.
"""
