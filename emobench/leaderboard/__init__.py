"""The leaderboard: what an entry is, where entries are kept, what is comparable, how sure we are, and tables of it.

entry < labels | comparison | files < index < store < page
entry < examples | uncertainty < statistics < within < contrasts < compare | ranks < deltas < standings
standings < captions | figures | grid < cells | layout < table
compare | select < compare_lines < compare_table | compare_chart
standings | compare < site (a package: pages)
"""
