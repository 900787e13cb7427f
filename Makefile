# The two commands of README are `make demo` and `make test`; the rest is for daily work. Each target can be run again and again.
PYTHON ?= python3
BIN := .venv/bin
STAMPS := .stamps
# `make fuzz`: over all targets.
SECONDS ?= 600
CARGO_FUZZ := $(STAMPS)/cargo-fuzz/bin
RUST := $(shell find rust/src -name '*.rs') rust/Cargo.toml rust/Cargo.lock

.PHONY: demo test test-fast test-long build servers lint lint-python lint-rust test-rust fuzz format lock wheel clean

demo: build  ## the main job on a recorded shop: capture -> log -> Spark -> lake and database, verified
	$(BIN)/headrace demo

test: build servers lint test-rust  ## everything that CI runs
	$(BIN)/pytest

test-fast: build  ## below three minutes: no servers, no Spark
	$(BIN)/pytest tests/unit tests/property tests/golden

test-long: build servers  ## the full number of histories, kills and soaks
	HEADRACE_HISTORIES=10000 HEADRACE_SERVER_HISTORIES=200 HEADRACE_MESSAGES=1000000 HEADRACE_KILLS=100 \
	HEADRACE_PAYLOAD_ROWS=10000000 $(BIN)/pytest --timeout 7200

build: $(STAMPS)/native

servers: $(STAMPS)/venv  ## MariaDB, MySQL, PostgreSQL and Kafka for the tests
	$(BIN)/python -m tests.servers.install

lint: lint-python lint-rust

lint-python: $(STAMPS)/venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

lint-rust:
	cd rust && cargo fmt --check
	cd rust/fuzz && cargo fmt --check
	cd rust && cargo clippy --locked --all-targets -- -D warnings

test-rust:
	cd rust && cargo test --locked --quiet

# Sanitizers and coverage are options that a stable compiler hides without RUSTC_BOOTSTRAP. Memory that was freed and is kept for
# finding its use would count as the decoder's. Each target has its share of the time, in twelfths.
fuzz: $(STAMPS)/venv $(CARGO_FUZZ)/cargo-fuzz  ## the binlog decoder on inputs that coverage guides, SECONDS long
	$(BIN)/python rust/fuzz/seeds.py
	cargo fetch --quiet --locked --manifest-path rust/fuzz/Cargo.toml
	cd rust && export RUSTC_BOOTSTRAP=1 ASAN_OPTIONS=quarantine_size_mb=64 PATH=$(CURDIR)/$(CARGO_FUZZ):$$PATH && \
	for share in binlog_events:6 binlog_wire:3 binlog_file:2 gtid_set:1; do \
		cargo fuzz run $${share%:*} -- -rss_limit_mb=512 -timeout=10 -max_len=8192 -print_final_stats=1 \
			-max_total_time=$$(($(SECONDS) * $${share#*:} / 12)) || exit 1; \
	done

format: $(STAMPS)/venv
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cd rust && cargo fmt
	cd rust/fuzz && cargo fmt

lock: $(STAMPS)/venv  ## requirements/dev.lock anew from pyproject.toml
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --group dev --all-extras --generate-hashes --python-version 3.11 pyproject.toml --output-file requirements/dev.lock

wheel: $(STAMPS)/venv
	$(BIN)/maturin build --profile dist

$(STAMPS)/venv: requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit("headrace needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@command -v java >/dev/null || { echo "headrace needs Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "Python's venv module is missing (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --retries 10 --require-hashes -r requirements/dev.lock
	mkdir -p $(STAMPS) && touch $@

$(CARGO_FUZZ)/cargo-fuzz:
	cargo install --quiet --locked --version 0.13.1 --root $(STAMPS)/cargo-fuzz cargo-fuzz

$(STAMPS)/native: $(STAMPS)/venv $(RUST) pyproject.toml
	@command -v cargo >/dev/null || { echo "building from source needs a Rust tool chain (rustup.rs); a wheel does not"; exit 1; }
	PATH=$(CURDIR)/$(BIN):$$PATH MATURIN_PEP517_ARGS=--locked $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv .stamps rust/target rust/fuzz/target rust/fuzz/corpus rust/fuzz/artifacts src/headrace/*.so .mypy_cache .ruff_cache .pytest_cache
