"""One port of ours: who is connected, how many at most, and who must go when it is full.

Knows nothing of what is asked. `front_door` listens, `places` counts connections, `turns` counts
requests in flight, `connection` is one client's, with its time limits.
"""
