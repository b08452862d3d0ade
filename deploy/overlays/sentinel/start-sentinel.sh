#!/bin/sh
# Start one of the Sentinels. What it has found out is in /data, and stays over a restart.
#
# SELF       host name of this Sentinel
# FIRST      host name of the Redis that is primary in the beginning
# SENTINELS  host name of any Sentinel
set -eu

named_by_sentinels() {
  timeout 3 redis-cli -h "$SENTINELS" -p 26379 sentinel get-master-addr-by-name enforcer 2>/dev/null |
    head -n 1
}

config=/data/sentinel.conf
if [ ! -s "$config" ]; then
  primary=$(named_by_sentinels) || primary=
  primary=${primary:-$FIRST}
  # A Sentinel ends when its primary's name means nothing.
  until getent hosts "$primary" >/dev/null; do
    echo "waiting for $primary"
    sleep 1
  done
  # Names, not addresses: those change with every new pod, and Sentinels would stick to the old ones.
  cat >"$config.new" <<END
port 26379
dir /data
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $SELF
sentinel announce-port 26379
sentinel monitor enforcer $primary 6379 2
sentinel down-after-milliseconds enforcer 5000
sentinel failover-timeout enforcer 15000
sentinel parallel-syncs enforcer 1
END
  mv "$config.new" "$config"
fi

exec redis-server "$config" --sentinel
