# Sourced by the examples: a hub of their own in a temporary directory, on a free port.
# `maru` must be on the PATH. Everything is removed at the end.
set -eu
WORK=$(mktemp -d)
export MARU_DATA_DIR="$WORK/data"
mkdir -m 700 "$MARU_DATA_DIR"
started=""
postgres_directory=""
clean_up() {
    for id in $started; do kill "$id" 2>/dev/null || true; done
    wait
    rm -rf "$WORK" "$postgres_directory"
}
trap clean_up EXIT

# wait_for ID FILE TEXT: returns when the program ID has written TEXT into FILE.
wait_for() {
    until grep -qs "$3" "$2"; do
        kill -0 "$1" || { cat "$WORK"/*.log >&2; exit 1; }
        sleep 0.1
    done
}

# start_hub [OPTION…]: returns when the hub answers. A second hub needs another MARU_DATA_DIR.
start_hub() {
    maru --listen 127.0.0.1:0 "$@" serve >"$MARU_DATA_DIR.out" 2>"$MARU_DATA_DIR.log" &
    started="$started $!"
    wait_for $! "$MARU_DATA_DIR.out" 'Stop with'
    HUB=$(sed -n 's/^ *health *\(http[^ ]*\)\/healthz.*/\1/p' "$MARU_DATA_DIR.out")
    TOKEN=$(cat "$MARU_DATA_DIR/admin-token")
}

# start_stand_in FILE: a program in place of a service, which prints its address; sets
# STAND_IN_URL.
start_stand_in() {
    output=$WORK/stand-in.out
    python3 "$1" >"$output" 2>"$WORK/stand-in.log" &
    started="$started $!"
    wait_for $! "$output" http
    STAND_IN_URL=$(cat "$output")
}

# start_model: a scripted model in place of a real one; sets MODEL_URL.
start_model() {
    start_stand_in ../model.py
    export MODEL_URL="$STAND_IN_URL"
}

free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# start_postgres: a PostgreSQL of this example; sets POSTGRES_URL, an address of its owner, and
# POSTGRES_PORT. PostgreSQL refuses to run as root, so root starts it as the user postgres.
start_postgres() {
    for programs in /usr/lib/postgresql/*/bin; do PATH=$PATH:$programs; done
    postgres_directory=$(mktemp -d /tmp/maru-example.XXXXXX)
    as_postgres=""
    if [ "$(id -u)" = 0 ]; then
        chown postgres "$postgres_directory"
        as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"
    fi
    POSTGRES_PORT=$(free_port)
    (
        cd "$postgres_directory"
        echo example | $as_postgres tee password >/dev/null
        $as_postgres initdb --pgdata data --username maru --auth scram-sha-256 --pwfile password --no-sync >/dev/null
    )
    $as_postgres postgres -D "$postgres_directory/data" -p "$POSTGRES_PORT" -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories= -c fsync=off >"$WORK/postgres.log" 2>&1 &
    started="$started $!"
    wait_for $! "$WORK/postgres.log" 'ready to accept connections'
    POSTGRES_URL=postgres://maru:example@127.0.0.1:$POSTGRES_PORT/postgres
}
