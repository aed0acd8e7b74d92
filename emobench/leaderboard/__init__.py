"""The leaderboard: what an entry is, where entries are kept, what is comparable, how sure we are, and tables of it.

schema < store < sharing < stats < query < render < charts < exchange < site
"""
