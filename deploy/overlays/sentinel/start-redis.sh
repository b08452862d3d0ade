#!/bin/sh
# Start one of the Redis: as the primary if the Sentinels say that it is, else as a replica of theirs.
#
# SELF, FIRST  host names: of this server, and of the one that is primary in the beginning
# SENTINELS    host name of any Sentinel
set -eu

named_by_sentinels() {
  timeout 3 redis-cli -h "$SENTINELS" -p 26379 sentinel get-master-addr-by-name enforcer 2>/dev/null |
    head -n 1
}

primary=$(named_by_sentinels) || primary=
while [ -z "$primary" ]; do
  if [ ! -e /data/appendonlydir ]; then
    # No earlier life, so nothing to lose by following the first.
    primary=$FIRST
  else
    # After all servers were down, a guess could make the one with the newest books copy older ones.
    echo "waiting for a Sentinel at $SENTINELS"
    sleep 1
    primary=$(named_by_sentinels) || primary=
  fi
done

set --
if [ "$primary" != "$SELF" ]; then
  set -- --replicaof "$primary" 6379
fi
echo "the primary is $primary"

# noeviction: evicting a key would be forgetting what was promised; a full server refuses instead.
# min-replicas: a primary that was cut off soon refuses writes that nobody would ever see.
# protected-mode: who may connect is for the NetworkPolicy.
exec redis-server --port 6379 --dir /data \
  --appendonly yes --appendfsync everysec \
  --maxmemory 512mb --maxmemory-policy noeviction \
  --min-replicas-to-write 1 --min-replicas-max-lag 5 \
  --replica-announce-ip "$SELF" --replica-announce-port 6379 \
  --protected-mode no "$@"
