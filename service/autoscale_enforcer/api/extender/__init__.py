"""kube-scheduler's front door: one module a verb, `app` puts them behind their paths.

Only bind, reserve and unreserve change holds. With a file source, what a request says of a pod
that nobody knows is noted, so that every replica knows it.
"""
