"""Where facts come from, and what is done to the cluster: the one place that knows either.

`source` says what any cluster can be asked, `file_source` answers from a file. `binder` and
`leader` turn what it says into facts in the ledger.
"""
