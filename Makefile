# The commands people use. `make demo` and `make test` install what is missing (a C compiler, the pinned
# Rust toolchain, Python packages into .venv) and say what they do and how long it took.

SHELL := /bin/bash
PYTHON := .venv/bin/python
PHASE := .ci/phase

.PHONY: help demo build lab dist check test test-long test-datafusion test-datafusion-long bench measure simulate soak crash-test kafka-crash-test test-kafka-old demo-restart demo-kafka fuzz memcheck sanitize test-rdma test-rdma-two clean

help:
	@echo "make demo       build, and run the first example"
	@echo "make dist       a tarball, a Debian package and what a container image takes, into target/packages: an hour"
	@echo "make check      for every save: formatting, clippy, tidy, unit tests, SQL files; minutes"
	@echo "make test       everything that CI runs, minutes per phase"
	@echo "make test-long  the SQL, oracle and simulation suites with many more seeds"
	@echo "make test-datafusion  the shuffle as DataFusion's network: all 22 queries of TPC-H"
	@echo "make test-datafusion-long  its queries at scale 0.1, all with each design and each kind of join"
	@echo "make test-rdma  what needs an RDMA device, in a virtual machine (docs/rdma.md)"
	@echo "make test-rdma-two  the same between two virtual machines"
	@echo "make bench      builds millstream-lab: a short benchmark of every workload, answers checked"
	@echo "make measure    the grid of docs/measuring.md and its report, into MEASURE_DIR (target/measure): hours"
	@echo "make simulate   whole jobs on one thread from many seeds"
	@echo "make soak       followed files and HTTP for ten minutes each, checkpoints for an hour, then the oracle suite until it"
	@echo "                fails or SOAK_MINUTES (60) have passed"
	@echo "make crash-test  jobs with checkpoints that are killed and go on: CRASH_COUNT (1000) crashes"
	@echo "make kafka-crash-test  the same over Kafka: KAFKA_CRASH_COUNT (100) kills of jobs, BROKER_CRASH_COUNT (20) of the broker"
	@echo "make test-kafka-old  the tests of Kafka with a broker of version 3.9, which it fetches; builds"
	@echo "make demo-restart  examples/restart: a followed directory, kill -9, the same command again; builds"
	@echo "make demo-kafka  examples/kafka: a broker, a producer, a job that is killed twice, counts that add up; builds"
	@echo "make fuzz       hostile input for FUZZ_SECONDS (600)"
	@echo "make memcheck   tests of the fabric, channels and the shuffle under valgrind"
	@echo "make sanitize   tests of state, fabric, channels and the shuffle with AddressSanitizer"
	@echo "make clean      remove what was built"

demo:
	@.ci/setup cc rust
	@$(PHASE) "Building millstream (a release binary; the first time takes several minutes)" \
		cargo build --release --locked -p millstream-cli
	@echo "==> Running examples/cluster-monitoring.sql: mean CPU request per job, windows of 2 seconds"
	@target/release/millstream run examples/cluster-monitoring.sql

build:
	@.ci/setup cc rust
	cargo build --release --locked -p millstream-cli

dist:
	@.ci/setup cc rust dist
	@$(PHASE) "Building and packing what people download" packaging/build.sh

check:
	@.ci/check

test:
	@.ci/test

test-long: .venv/ready
	@.ci/setup cc rust
	cargo build --profile ci --locked --workspace --all-targets
	$(PYTHON) tests/run_sql.py --seeds 1000 --full
	$(PYTHON) tests/oracle/run.py --count 2000
	$(PYTHON) tests/oracle/conditions.py --count 2000
	MILLSTREAM_CALLS=100 cargo test --profile ci --locked -p millstream-sql --lib every_call
	MILLSTREAM_MOMENTS=100 $(PYTHON) -m pytest -q tests/e2e/test_processes_failing.py
	@.ci/setup kafka apicurio
	MILLSTREAM_APICURIO=1 $(PYTHON) -m pytest -q tests/e2e/test_kafka_avro.py -k not_ours
	$(MAKE) simulate

test-datafusion:
	@.ci/setup cc rust
	cargo clippy --profile ci --locked --workspace --all-targets -- -D warnings
	cargo test --profile ci --locked --workspace --test queries --test failing

test-datafusion-long:
	@.ci/setup cc rust
	MILLSTREAM_TPCH_SCALE=$${MILLSTREAM_TPCH_SCALE:-0.1} \
		cargo test --profile ci --locked --workspace --test queries -- --include-ignored --nocapture

test-rdma:
	@.ci/setup cc rust rdma
	@tests/rdma/run.py

test-rdma-two:
	@.ci/setup cc rust rdma
	@tests/rdma/run.py --two

lab:
	@.ci/setup cc rust
	cargo build --release --locked -p millstream-lab

bench: lab
	@for workload in ysb ysb_small ysb_str nb7 cm ro; do \
		for engine in handwritten millstream; do \
			target/release/millstream-lab bench $$workload --workers 1 --engine $$engine || exit 1; \
		done; \
	done

measure: lab
	@.ci/setup measure
	MILLSTREAM_LAB_BIN=target/release/millstream-lab $(PYTHON) tests/measure.py $${MEASURE_DIR:-target/measure} $(MEASURE)

simulate:
	@.ci/setup cc rust
	MILLSTREAM_SEEDS=$${MILLSTREAM_SEEDS:-100000} cargo test --profile ci --locked --workspace \
		--test jobs equivalence::simulated -- --nocapture
	MILLSTREAM_SEEDS=$$(( $${MILLSTREAM_SEEDS:-100000} / 10 )) cargo test --profile ci --locked --workspace \
		--test jobs simulated_processes:: -- --nocapture
	MILLSTREAM_SEEDS=$$(( $${MILLSTREAM_SEEDS:-100000} / 10 )) cargo test --profile ci --locked -p millstream-dfi \
		--test flows -- --nocapture seeds:: multicast::
	MILLSTREAM_SEEDS=$$(( $${MILLSTREAM_SEEDS:-100000} / 10 )) cargo test --profile ci --locked -p millstream-dfi \
		--example kv_store -- --nocapture

soak: .venv/ready
	@.ci/setup cc rust
	cargo build --profile ci --locked --workspace --all-targets
	MILLSTREAM_SOAK_SECONDS=600 $(PYTHON) -m pytest -q tests/e2e/test_live_sources.py -k memory_stays_flat
	MILLSTREAM_SOAK_SECONDS=3600 $(PYTHON) -m pytest -q tests/e2e/test_restart.py -k stay_bounded
	@first=1000000; end=$$((SECONDS + 60 * $${SOAK_MINUTES:-60})); \
	while [ $$SECONDS -lt $$end ]; do \
		$(PYTHON) tests/oracle/run.py --first $$first --count 200 || exit 1; \
		first=$$((first + 200)); \
	done

crash-test: .venv/ready
	@.ci/setup cc rust
	cargo build --profile ci --locked --workspace --all-targets
	$(PYTHON) tests/crash.py --count $${CRASH_COUNT:-1000}

kafka-crash-test: .venv/ready
	@.ci/setup cc rust kafka
	cargo build --profile ci --locked --workspace --all-targets
	$(PYTHON) tests/kafka_crash.py --count $${KAFKA_CRASH_COUNT:-100} --brokers $${BROKER_CRASH_COUNT:-20}

test-kafka-old: .venv/ready
	@.ci/setup cc rust kafka_old
	cargo build --profile ci --locked --workspace --all-targets
	MILLSTREAM_KAFKA=$${CARGO_TARGET_DIR:-target}/kafka-old $(PYTHON) -m pytest -q tests/e2e/test_kafka*.py
	MILLSTREAM_KAFKA=$${CARGO_TARGET_DIR:-target}/kafka-old $(PYTHON) tests/kafka_crash.py --count 20 --brokers 2

demo-restart: build
	examples/restart/demo.sh target/release/millstream

demo-kafka: build
	@.ci/setup python kafka
	$(PYTHON) examples/kafka/demo.py target/release/millstream

fuzz: .venv/ready
	@.ci/setup cc rust
	cargo build --profile ci --locked --workspace --all-targets
	$(PYTHON) tests/fuzz.py --first $$RANDOM --seconds $${FUZZ_SECONDS:-600}
	MILLSTREAM_SEED=$$RANDOM MILLSTREAM_FUZZ_SECONDS=$${FUZZ_SECONDS:-600} \
		cargo test --profile ci --locked -p millstream-flow --test channel_fuzz
	MILLSTREAM_SEED=$$RANDOM MILLSTREAM_FUZZ_SECONDS=$${FUZZ_SECONDS:-600} \
		cargo test --profile ci --locked -p millstream-connect --test fuzz
	MILLSTREAM_SEED=$$RANDOM MILLSTREAM_FUZZ_SECONDS=$${FUZZ_SECONDS:-600} \
		cargo test --profile ci --locked --workspace --test control_fuzz

memcheck:
	@.ci/setup cc rust memcheck
	tests/memcheck.sh

sanitize:
	@.ci/setup cc rust
	tests/sanitize.sh

.venv/ready: tests/requirements.txt
	@.ci/setup python

clean:
	rm -rf target .venv .venv-dist .pytest_cache
