"""Recorded scheduler traffic, sent again to a running extender whose answers are judged.

Reads messages with types of its own and shares no codec with the service, so that a fault in one
cannot hide in the other. Imports nothing of this package but `errors`; only `cli` imports it.
"""
