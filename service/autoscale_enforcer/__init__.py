"""autoscale-enforcer: promises each node's CPU and memory exactly once.

Layers, each importing only those below it: `cli`, `api`, `cluster`, then `ledger`, `policy`,
`wire`, `config`, `objects`, and at the bottom `model`. ARCHITECTURE.md has the picture.
"""

__version__ = "0.1.0"
