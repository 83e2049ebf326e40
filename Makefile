# `make test` installs what the tests need and runs all of them; `make quick` runs what
# needs no other programs, as any user.
.PHONY: test quick lint deny fuzz targets dist docs bench bench-peers soak run

BIN = $${CARGO_TARGET_DIR:-target}

test: lint deny
	cargo build --quiet --package fixture-server --package maru-conformance-client
	CLIENT_TOOLS="$$(scripts/tools)" FIXTURE_SERVER="$(BIN)/debug/fixture-server" CONFORMANCE_CLIENT="$(BIN)/debug/maru-conformance-client" cargo nextest run --no-fail-fast
	cargo test --quiet --package mcpload
	cargo build --quiet
	CLIENT_TOOLS="$$(scripts/tools)" scripts/console
	scripts/fuzz 3

# The profile `quick` in .config/nextest.toml says which tests it leaves out.
quick:
	cargo build --quiet --package fixture-server
	FIXTURE_SERVER="$(BIN)/debug/fixture-server" cargo nextest run --no-fail-fast --profile quick

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --quiet

deny:
	command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny --all-features --log-level error check licenses bans sources

# Every parser of outside text, a minute each.
fuzz:
	scripts/fuzz 60

# Whether maru compiles for every system that it supports.
targets:
	scripts/targets

# Every package, in target/packages, and whether they work (as root).
dist:
	scripts/dist $(TARGETS)
	scripts/check-packages

docs:
	cargo run --quiet -- config --reference > docs/config.md.new && mv docs/config.md.new docs/config.md
	cargo run --quiet -- man --reference > docs/commands.md.new && mv docs/commands.md.new docs/commands.md

# One run against the hub and its floor; ratios and CPU per call.
bench:
	scripts/bench
	scripts/bench-data
	scripts/bench-chat

# The hub and its peers from the registries on the same work.
bench-peers:
	scripts/bench-peers

# Kills, thousands of sessions, abandoned ones, SIGTERM under load, 100,000 calls,
# floods; then every fault of servers and models five times.
soak:
	cargo build --profile dist --quiet --package maru --package fixture-server
	scripts/soak
	CLIENT_TOOLS="$$(scripts/tools)" cargo nextest run --stress-count 5 faults:: openai::evil

run:
	cargo run --release
