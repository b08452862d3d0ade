"""Pure types that every layer shares: resources, facts about cluster objects, rows of the ledger.

No I/O, no clock, no library but the standard one. Imports nothing of this package but `errors`.
"""
