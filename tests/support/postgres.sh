#!/usr/bin/env bash
# A private PostgreSQL for the tests: its own cluster in a temporary folder, its own port on loopback, its own password.
#   tests/support/postgres.sh start   starts it and prints its URL, nothing else, on standard output
#   tests/support/postgres.sh stop    stops it and removes the folder
# Works as root (the server then runs as the user postgres) and as any user that has PostgreSQL's programs.
set -euo pipefail

state="${TMPDIR:-/tmp}/mlbench-test-postgres-$(id -u)"
as_server() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

bin="$(command -v pg_ctl >/dev/null 2>&1 && dirname "$(command -v pg_ctl)" || ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)"
if [ -z "$bin" ] || [ ! -x "$bin/initdb" ]; then
    echo "PostgreSQL's server programs are not here; apt-get install postgresql" >&2
    exit 1
fi

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    if [ -f "$state/url" ] && as_server "$bin/pg_ctl" -D "$state/data" status >/dev/null 2>&1; then
        cat "$state/url"
        return
    fi
    rm -rf "$state"
    mkdir -m 700 "$state"
    if [ "$(id -u)" = 0 ]; then chown postgres "$state"; fi
    password="$(head -c 18 /dev/urandom | base64 | tr -d '/+=')"
    port="$(free_port)"
    (umask 077 && printf '%s\n' "$password" >"$state/password")
    if [ "$(id -u)" = 0 ]; then chown postgres "$state/password"; fi
    cd "$state"
    as_server "$bin/initdb" -D "$state/data" -U mlbench -A scram-sha-256 --pwfile="$state/password" -E UTF8 \
        --no-locale --no-sync >"$state/initdb.log" 2>&1 || { cat "$state/initdb.log" >&2; exit 1; }
    rm -f "$state/password"
    # Nothing here outlives the tests, so nothing waits for the disk.
    as_server "$bin/pg_ctl" -D "$state/data" -w -t 60 -l "$state/data/server.log" \
        -o "-h 127.0.0.1 -p $port -k $state -c fsync=off -c full_page_writes=off -c max_connections=200" start \
        >"$state/start.log" 2>&1 || { cat "$state/start.log" "$state/data/server.log" >&2; exit 1; }
    (umask 077 && printf 'postgresql://mlbench:%s@127.0.0.1:%s/postgres\n' "$password" "$port" >"$state/url")
    cat "$state/url"
}

stop() {
    [ -d "$state" ] || return 0
    cd /
    as_server "$bin/pg_ctl" -D "$state/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$state"
}

case "${1:-}" in
start) start ;;
stop) stop ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
