# Every target carries its explanation after '##'; bare `make` prints them.
SHELL := bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := spark,rocksdb,kafka,postgres,ui,dev,docs
# Folders that exist; the checks cover all of them.
SOURCES := $(wildcard penstock tests examples benchmarks scripts/*.py)
PYTEST_ARGS ?=
SOAK_ARGS ?=
SLOW_SINK_ARGS ?=
SIMULATE_ARGS ?=
MUTANTS ?=
HOSTS_ARGS ?=
NEXMARK_ARGS ?=
PEERS_ARGS ?=
MATRIX_ARGS ?=

# Spark's workers must be the interpreter that has Penstock and the user's libraries, activated or not.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Expanded once, when make starts: the time printed at the end includes set-up.
STARTED := $(shell date +%s)

.PHONY: help setup java kafka postgres browser demo cluster-demo compat compat-programs spark-matrix quick test check reference docs format bench bench-latency bench-growth bench-nexmark bench-peers bench-scale bench-kafka bench-postgres bench-state simulate mutants chaos chaos-kafka hosts nightly-tests nightly slow-sink soak yarn clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  make test PYTEST_ARGS="-k barrier -x" hands arguments to pytest; PYTHON=python3.12 picks the interpreter of a new .venv.'

setup: $(STAMP) ## create .venv and install Penstock with everything (again only when pyproject.toml changed)

# The interpreter is an ordinary prerequisite: when it had to be created (or its symlink dangled), packages must follow.
$(STAMP): pyproject.toml $(BIN)/python
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer, but $(VENV) has $$($(BIN)/python -V 2>&1)." \
	       "Delete $(VENV) and run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No $(PYTHON) on PATH. Install Python 3.11 or newer, or run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	       "Run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

java: ## check for Java 17+, which Spark needs (installs it when root on Debian or Ubuntu)
	@scripts/ensure_java.sh

demo: setup java ## run the clickstream example
	$(BIN)/python -m examples.clickstream.demo

cluster-demo: setup java ## a standalone Spark master and two workers, a job on them, one worker killed (a minute)
	$(BIN)/python -m examples.cluster.demo

yarn: setup java ## a ResourceManager and two NodeManagers, jobs on them, an executor killed (5 minutes; not part of make test)
	PENSTOCK_YARN=1 PENSTOCK_REQUIRE_SERVERS=1 $(BIN)/python -m pytest tests/yarn $(PYTEST_ARGS)

kafka: setup java ## fetch the Kafka broker that tests run against, into the user's cache
	$(BIN)/python -m tests.servers.kafka

browser: $(VENV)/.browser ## find or install the Chromium that the web page is tested in

$(VENV)/.browser: scripts/ensure_browser.sh $(STAMP)
	@scripts/ensure_browser.sh $(BIN)/python
	@touch $@

postgres: ## check for the programs of a PostgreSQL server, which tests start (installs them when root on Debian or Ubuntu)
	@scripts/ensure_postgres.sh

compat: setup ## PyFlink's own tests and Flink's example programs, fetched and unchanged: the score (2 minutes; FLINK_GIT, RUNTIME)
	@$(BIN)/python scripts/compat/score.py

compat-programs: setup java ## public PyFlink programs, fetched and unchanged, on both runtimes: does the table hold? (15 minutes; REPOSITORIES)
	@status=0; for runtime in embedded spark; do \
	  $(BIN)/python scripts/compat/public.py --runtime $$runtime $(if $(REPOSITORIES),--repositories $(REPOSITORIES)) || status=1; \
	done; exit $$status

spark-matrix: setup java ## tests and table formats on Spark 4.1, 4.2 and 4.3, each in an environment of its own: the table (half an hour; MATRIX_ARGS)
	$(BIN)/python scripts/spark_matrix.py $(MATRIX_ARGS)

quick: setup ## the tests that need no Java, no server and no browser (3 minutes)
	@JAVA_HOME=/no/java/here $(BIN)/python -m tests.parts quick $(PYTEST_ARGS)

test: setup java kafka postgres browser check ## all that CI runs: the checks, then every test (25 minutes on two cores)
	@PENSTOCK_REQUIRE_SERVERS=1 $(BIN)/python -m tests.parts test $(PYTEST_ARGS); status=$$?; \
	  echo "make test took $$(( $$(date +%s) - $(STARTED) )) s in all"; exit $$status

nightly-tests: setup java kafka postgres browser ## the tests that are too long for make test (pytest -m nightly --nightly)
	@PENSTOCK_REQUIRE_SERVERS=1 $(BIN)/python -m pytest -m nightly --nightly $(PYTEST_ARGS)

check: setup ## lint, formatting and types, changing nothing
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy --strict $(SOURCES)

reference: setup ## write the tables of docs/reference/configuration.md from the table of options
	$(BIN)/python -m penstock.common.option_page docs/reference/configuration.md

docs: setup ## build the site with an API reference from the docstrings into build/site; broken links fail (half a minute)
	$(BIN)/python scripts/build_docs.py

format: setup ## format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench-state: setup ## measure RocksDB with 10 million keys, and a slow checkpoint store (no Spark; 10 minutes)
	$(BIN)/python -m benchmarks.state_backend
	$(BIN)/python -m benchmarks.asynchronous_snapshots

bench-latency: setup java ## from event to result: pipelined at three rates and six levels, epochs, micro-batches, PyFlink (20 minutes)
	$(BIN)/python -m benchmarks.latency

bench-growth: setup ## cost against size of lists, windows, sessions, maps, joins, chains, epochs; fails when a law gets worse (3 minutes)
	$(BIN)/python -m benchmarks.growth

bench-nexmark: setup java ## Nexmark's queries on both ways of running, answers compared with DuckDB's (half an hour; NEXMARK_ARGS, such as --only q5 --modes pipelined,flink-sql,spark)
	$(BIN)/python -m benchmarks.nexmark $(NEXMARK_ARGS)

bench-peers: setup java ## Penstock beside Flink SQL, PyFlink, Spark, Bytewax and Pathway: three workloads, answers checked (half an hour; PEERS_ARGS, such as --systems spark --workloads W2)
	$(BIN)/python -m benchmarks.peers $(PEERS_ARGS)

bench-scale: setup java ## what the driver costs with 6, 192 and 999 hosts, and the model for a thousand cores beside small runs (5 minutes)
	$(BIN)/python -m benchmarks.scale

bench: setup java ## measure throughput and latency
	$(BIN)/python -m benchmarks

simulate: setup ## ten thousand random runs of the embedded runtime with everything at once, against an oracle (half an hour; SIMULATE_ARGS)
	$(BIN)/python -m penstock.testing.simulate --seeds 0..9999 $(SIMULATE_ARGS)

mutants: setup java postgres ## sabotage the product in one place after the other: a test must notice each (an hour; MUTANTS picks by name)
	$(BIN)/python -m tests.mutants $(MUTANTS)

chaos: setup java ## kill processes of running jobs and compare the answers with a reference (half an hour; RUNS, KILLS, RECORDS)
	$(BIN)/python -m tests.chaos

chaos-kafka: setup kafka postgres ## records from Kafka to Kafka and PostgreSQL while processes and servers are killed (MODE=pipelined or epochs)
	$(BIN)/python -m tests.chaos.kafka_run

slow-sink: setup java ## a sink is slow for five minutes, once in its writes and once in its commits: what is named, bounded, regained (SLOW_SINK_ARGS)
	$(BIN)/python -m tests.chaos.slow_sink $(SLOW_SINK_ARGS)

soak: setup java ## twenty minutes of a pipelined job whose workers are killed: memory, files, threads, processes must not grow (SOAK_ARGS)
	$(BIN)/python -m tests.chaos.soak $(SOAK_ARGS)

hosts: setup java ## as root: hosts in network namespaces; slot, executor, host killed, links cut, a second driver (20 minutes; HOSTS_ARGS)
	$(BIN)/python -m tests.hosts $(HOSTS_ARGS)
	$(BIN)/python -m tests.hosts --mode pipelined slot-killed executor-killed host-killed vanishes second-driver

# One after the other, all of them whatever fails: a night is for finding more than the first thing that is wrong.
nightly: setup java kafka postgres browser ## the long runs, one after the other: tests marked nightly, simulate, mutants, chaos, hosts, soak, slow-sink (a night)
	@failed=; for run in nightly-tests simulate mutants chaos hosts soak slow-sink; do $(MAKE) $$run || failed="$$failed $$run"; done; \
	  if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

bench-kafka: setup kafka ## throughput from Kafka to Kafka beside a plain loop and Spark's connector
	$(BIN)/python -m benchmarks.kafka

bench-postgres: setup java postgres ## rows into PostgreSQL beside plain loops, appended and upserted
	$(BIN)/python -m benchmarks.postgres

clean: ## delete caches, builds and reports (.venv stays)
	rm -rf build dist reports .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find penstock tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +
