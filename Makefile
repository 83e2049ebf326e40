# `make test` installs what the tests need and runs all of them.
.PHONY: test lint docs bench soak run

test: lint
	cargo build --quiet --package fixture-server --package maru-conformance-client
	CLIENT_TOOLS="$$(scripts/tools)" FIXTURE_SERVER="$${CARGO_TARGET_DIR:-target}/debug/fixture-server" CONFORMANCE_CLIENT="$${CARGO_TARGET_DIR:-target}/debug/maru-conformance-client" cargo nextest run --no-fail-fast
	cargo test --quiet --package mcpload
	cargo build --quiet
	CLIENT_TOOLS="$$(scripts/tools)" scripts/console

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --quiet

docs:
	cargo run --quiet -- config --reference > docs/config.md.new && mv docs/config.md.new docs/config.md

# One run against the hub and its floor; ratios and CPU per call.
bench:
	scripts/bench
	scripts/bench-data
	scripts/bench-chat

# Kills, thousands of sessions, abandoned ones, SIGTERM under load, 100,000 calls,
# floods; then every fault of servers and models five times.
soak:
	cargo build --release --quiet --package maru --package fixture-server
	scripts/soak
	CLIENT_TOOLS="$$(scripts/tools)" cargo nextest run --stress-count 5 faults:: openai::evil

run:
	cargo run --release
