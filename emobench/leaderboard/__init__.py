"""The leaderboard: what an entry is, where entries are kept, what is comparable, how sure we are, and tables of it.

entry (schema 1) < comparison | files < store | examples | statistics < cells < table
"""
