"""What to decide: fit, score, preemption, the choice of migrations.

Pure: no I/O, no clock, no randomness of its own; what is decided about comes in as values.
"""
