"""Boards that several people share: `share.py` moves entries, `digests.py` lists and signs, `places.py` keeps them."""
