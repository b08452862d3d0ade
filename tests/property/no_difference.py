"""Mutants that change nothing which anybody may rely on, by the reason why.

A mutant that is caught must not be listed; one that is not caught and not listed fails the test.
"""

from __future__ import annotations

_BY_REASON: dict[str, tuple[str, ...]] = {
    "it is for a server that is waited for: tests/fault/test_durability.py": (
        "check_ledger: dropped: redis.call('HINCRBY', keys.meta, 'marks', 1)",
        "check_ledger: doubled: redis.call('HINCRBY', keys.meta, 'marks', 1)",
        "check_ledger: sign turned: redis.call('HINCRBY', keys.meta, 'marks', 1)",
        "check_ledger: check dropped: if mark then",
    ),
    "lists lack something only where a server evicts: tests/lua/test_find_unlisted.py": (
        (
            "find_unlisted: sign turned: local names = redis.call('HLEN', keys.pods) - "
            "redis.call('HLEN', keys.names)"
        ),
        "find_unlisted: sign turned: nodes = nodes + redis.call('HEXISTS', keys.nodes, name)",
        "find_unlisted: sign turned: rows[#rows + 1] = redis.call('HGET', keys.pods, uid) or nil",
        "find_unlisted: check dropped: if not redis.call('ZSCORE', keys.changes, name) then",
        "find_unlisted: check dropped: if not redis.call('ZSCORE', keys.deadlines, uid) then",
    ),
    "the same command a second time finds its work done": (
        "begin_build: doubled: redis.call('UNLINK', unpack(fresh))",
        "begin_build: doubled: redis.call( 'HSET', meta, 'epoch', epoch, 'fence', token, 's",
        "ask_compare: doubled: redis.call('HSET', keys.compare, 'asked', asked)",
        "check_ledger: doubled: redis.call('HDEL', keys.meta, 'epoch')",
        "check_ledger: doubled: redis.call('HSET', keys.meta, 'epoch', new_epoch, 'state', '",
        "claim_ledger: doubled: redis.call('HSET', meta, 'cluster', cluster)",
        "delete_node: doubled: redis.call('ZADD', keys.gone, now_ms, uid)",
        "drop_lease: doubled: redis.call('DEL', keys.lease)",
        "freeze_grants: doubled: redis.call('HSET', keys.freezes, node, table.concat({now_ms,",
        "lose_books: doubled: redis.call('HSET', keys.meta, 'lost_ms', lost_ms)",
        "lose_books: doubled: redis.call('HDEL', keys.meta, 'epoch')",
        "load_pods: doubled: redis.call('HSET', keys.facts, uid, fact.blob)",
        "load_row: doubled: redis.call('HSET', facts, id, blob)",
        "load_row: doubled: redis.call('ZADD', changes, version, id)",
        "load_row: doubled: redis.call('HSET', meta, 'version', version)",
        "load_row: doubled: redis.call('HSET', names, pod.name, id)",
        "load_row: doubled: redis.call('ZADD', deadlines, pod.deadline, id)",
        "migrate_ledger: doubled: redis.call('HDEL', keys.meta, 'epoch')",
        "migrate_ledger: doubled: redis.call('HSET', keys.nodes, id, row)",
        "migrate_ledger: doubled: redis.call('HSET', keys.pods, id, row)",
        "migrate_ledger: doubled: redis.call('HSET', keys.meta, 'schema', to, 'epoch', new_epo",
        "note_binding: doubled: redis.call('HSETNX', keys.bindings, uid, node)",
        "note_compared: doubled: redis.call('HSET', keys.compare, 'done', asked, 'replica', r",
        "publish_build: doubled: redis.call('UNLINK', KEYS[i + 9])",
        "publish_build: doubled: redis.call('UNLINK', new_journal)",
        "publish_build: doubled: redis.call('HSET', meta, 'state', state, 'replid', replid, '",
        "publish_build: doubled: redis.call('HSET', meta, field, kept[i])",
        "put_config: doubled: redis.call('HSET', meta, 'config_version', version, 'config'",
        "put_node: doubled: redis.call('HSET', keys.facts, name, blob)",
        "put_pod: doubled: keep_blob(keys, uid, blob)",
        "put_pod: doubled: keep_blob(keys, uid, blob) #1",
        "put_pod: doubled: keep_blob(keys, uid, blob) #2",
        "settle_ledger: doubled: redis.call('HSET', keys.meta, 'state', 'settled', 'settle_ms",
        "take_lease: doubled: redis.call('HSET', keys.lease, 'holder', holder, 'token', to",
        "take_lease: doubled: redis.call('PEXPIRE', keys.lease, lease_ms)",
        "take_lease: doubled: redis.call('HSET', keys.meta, 'fence', token)",
        "thaw_grants: doubled: redis.call('HDEL', keys.freezes, node)",
        "trim_changes: doubled: redis.call('ZREM', keys.changes, name)",
        "trim_changes: doubled: redis.call('HSET', keys.meta, 'oldest', oldest)",
        "trim_changes: doubled: redis.call('ZREMRANGEBYSCORE', keys.gone, '-inf', math.floor",
        "drop_pod: doubled: redis.call('ZADD', keys.gone, now_ms, uid)",
        "drop_pod: doubled: redis.call('ZREMRANGEBYSCORE', keys.gone, '-inf', now_ms - 6",
        "drop_pod: doubled: redis.call('HDEL', keys.names, name)",
        "drop_pod: doubled: redis.call('HDEL', keys.pods, uid)",
        "drop_pod: doubled: redis.call('HDEL', keys.facts, uid)",
        "drop_pod: doubled: redis.call('ZREM', keys.deadlines, uid)",
        "keep_blob: doubled: redis.call('HDEL', keys.facts, uid)",
        "keep_blob: doubled: redis.call('HSET', keys.facts, uid, blob)",
        "save_nodes: doubled: redis.call('ZADD', keys.changes, row.version, name)",
        "save_nodes: doubled: redis.call('HDEL', keys.nodes, name)",
        "save_nodes: doubled: redis.call('HDEL', keys.facts, name)",
        "save_nodes: doubled: redis.call('HSET', keys.nodes, name, text)",
        "save_pod: doubled: redis.call('HSET', keys.pods, uid, text)",
        "save_pod: doubled: redis.call('HSET', keys.names, pod.name, uid)",
        "save_pod: doubled: redis.call('ZADD', keys.deadlines, pod.deadline, uid)",
        "save_pod: doubled: redis.call('ZREM', keys.deadlines, uid)",
    ),
    "the row was written a moment before: the second HSET adds none, so nothing is counted": (
        "load_row: doubled: redis.call('HINCRBY', meta, 'nodes', redis.call('HSET', node",
        "load_row: doubled: redis.call('HINCRBY', meta, 'pods', redis.call('HSET', pods,",
    ),
    "works out the same from the same": (
        "confirm_bind: doubled: set_charges(after)",
        "load_pods: doubled: set_amounts(pod, nil, fact.approved)",
        "put_pod: doubled: set_amounts(after, holds and pod or nil, pod and {cpu = 0, m",
        "reserve_pod: doubled: set_charges(after)",
    ),
    "the pod had a row before, so the second time writes that same row and deadline": (
        "release_pod: doubled: save_pod(keys, uid, pod, before)",
        "request_permit: doubled: save_pod(keys, uid, pod, before)",
    ),
    "a version has to rise, by how much is nobody's business; the node is there and stays": (
        "recount_node: doubled: save_nodes(loaded, keys)",
        "request_permit: doubled: save_nodes(loaded, keys)",
        "save_nodes: doubled: redis.call('HINCRBY', keys.meta, 'version', 1)",
    ),
    "spares a look for changes where there are none": (
        "read_changes: check dropped: if since == version then",
    ),
    "spares writing the row that is there": ("save_pod: check dropped: if text == before then",),
    "no story scans every part of the books; tests/lua/test_reading.py does, and sees each": (
        "scan_books: check dropped: if part == 'journal' then",
        "scan_books: check dropped: elseif part == 'pods' then",
        "scan_books: check dropped: elseif part == 'names' then",
        "scan_books: check dropped: elseif part == 'facts' then",
        "scan_books: check dropped: elseif part == 'meta' then",
        "scan_books: check dropped: elseif part == 'changes' then",
        "scan_books: check dropped: elseif part == 'deadlines' then",
        "scan_books: sign turned: out[#out + 1] = entry[1]",
        "scan_books: sign turned: out[#out + 1] = entry[2]",
    ),
    "only a row that was damaged by hand is no row; the contract test of rows has such texts": (
        "node_row: check dropped: if not uid then",
        "pod_row: check dropped: if not name then",
    ),
    "spares a ZREM of what was never put there": ("save_pod: check dropped: elseif before then",),
    "a name always has a row (invariant 2), and books that lack one are unbuilt": (
        "name_holder: check dropped: if not text then",
    ),
    "nothing is loaded and nothing told of a pod without a row": (
        "delete_pod: check late: if not pod then",
    ),
    "the owner is written again as it is; another's is never overwritten": (
        "claim_ledger: check dropped: if not owner then",
        "claim_ledger: check late: if owner and owner ~= cluster then",
    ),
}

NO_DIFFERENCE = {title: reason for reason, titles in _BY_REASON.items() for title in titles}
