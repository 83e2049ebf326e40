# Sourced by the examples: a hub of their own in a temporary directory, on a free port.
# `maru` must be on the PATH. Everything is removed at the end.
set -eu
MARU_DATA_DIR=$(mktemp -d)
export MARU_DATA_DIR
started=""
clean_up() {
    for id in $started; do kill "$id" 2>/dev/null || true; done
    wait
    rm -rf "$MARU_DATA_DIR"
}
trap clean_up EXIT

# start_hub [OPTION…]: returns when the hub answers.
start_hub() {
    maru --listen 127.0.0.1:0 "$@" serve >"$MARU_DATA_DIR/out" 2>"$MARU_DATA_DIR/log" &
    started="$started $!"
    until grep -qs 'Stop with' "$MARU_DATA_DIR/out"; do
        kill -0 $! || { cat "$MARU_DATA_DIR/log" >&2; exit 1; }
        sleep 0.1
    done
    HUB=$(sed -n 's/^ *health *\(http[^ ]*\)\/healthz.*/\1/p' "$MARU_DATA_DIR/out")
    TOKEN=$(cat "$MARU_DATA_DIR/admin-token")
}

# start_model: a scripted model in place of a real one; sets MODEL_URL.
start_model() {
    python3 ../model.py >"$MARU_DATA_DIR/model" &
    started="$started $!"
    until [ -s "$MARU_DATA_DIR/model" ]; do sleep 0.1; done
    MODEL_URL=$(cat "$MARU_DATA_DIR/model")
    export MODEL_URL
}
