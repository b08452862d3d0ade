"""Hostile requests by the million, from a seed: `make fuzz`.

`requests` makes them out of recorded ones, `caller` sends them to a real replica, `__main__` counts
what came back and judges. The short ones in `tests/routes/test_fuzz.py` find the smallest example;
this one finds what only comes after many, such as memory that is never given back.
"""
