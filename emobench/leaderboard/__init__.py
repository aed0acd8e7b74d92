"""The leaderboard: what an entry is, where entries are kept, which are comparable, and how sure we are.

entry < store < stats < query
"""
