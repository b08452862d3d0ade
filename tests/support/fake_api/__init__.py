"""A Kubernetes API server that really streams, with faults on demand.

Kept close enough to kube-apiserver 1.36 that the real one brings no surprise: one counter of
versions, pages that are a snapshot, watches with bookmarks, Binding with its preconditions, the
same status codes, reasons and words. What it does not do: validate or default objects, admission,
resources other than those in `kinds`, server-side apply, JSON patch, PUT, finalizers, deletion of
what a namespace or owner holds, set-based selectors, `sendInitialEvents`, tables, protobuf,
compression, HTTP/2, and RBAC beyond a list of forbidden rights. Deletion of a running pod waits
for a kubelet, as it does there: `store.remove` stands in for one.
"""
