"""The leaderboard: what an entry is, where entries are kept, what is comparable, how sure we are, and tables of it.

schema < store < stats < query < render < charts < exchange < site
"""
