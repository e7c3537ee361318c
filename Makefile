# make demo   the service, forty small models and their kin
# make test   style, types, and the tests of minutes: SDK, service on SQLite, a pass through each server
# make test-rest  all other tests                                make test-all  both: every check there is
# make oldest the quick tests, with the lowest versions that are allowed
# make demo-sharing eight of them average in shards for a newcomer, and show none of their weights
# make demo-starting newcomers with 20 samples find their cluster, and its weights to start from
# make serve  the service alone                                  make bench  the figures of docs/benchmarks/
# make studies  the paper's tables again, for docs/evidence/
# make lint   style, types and layers                            make docs   the pages, as a site in site/
# make soak   10,000 writes through one process read through another, on each kind of service; a thousand
#             requests at random of each kind, and all mutants of files; a hundred kills of services under load;
#             a hub's checkpoint of 2 GB, and its base, through a service; many jobs of one tenant beside another's;
#             changes on SQLite that are read at once while its lock is held; machines that share a bucket;
#             what large answers cost; 50 restarts of processes on each database, under load without retries;
#             restarts of two services behind Caddy, where it is installed;
#             the last release beside this version, on a database that it made and this one migrated;
#             100,000 invented fingerprints that claim a popular base, and what is answered about others;
#             a hub of 163 checkpoints that a service follows through kills, and what it then says of them;
#             averages in shards on Ray and on a SuperLink, one of whose nodes is killed
#             and a federation in NVFlare's simulator, one of whose sites dies
# make flower the last but one of these alone, make nvflare the last
# make wheels wheel and sdist of both distributions, in dist/; try-wheels installs and asks them, image
#             builds the container, and release does what a release asks for before it is published
# make audit  known vulnerabilities of what is pinned
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
# Its pins of fastapi and uvicorn are for its own server, and older than the service's.
FLOWER := flwr==1.42.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# What pip would do one file after the other; packages' own tests are never imported.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib > /dev/null 2>&1 || true

.PHONY: demo demo-sharing demo-starting serve test test-rest test-all oldest quick-tests other-tests all-tests checks contracts browser kernels rewritten root-tests soak flower nvflare bench studies lint style types audit docs changelog wheels try-wheels image release format clean

demo: $(VENV)/.runtime
	$(BIN)/python -m demo $(if $(ONCE),--once)

demo-sharing: $(VENV)/.runtime
	$(BIN)/python -m demo --sharing $(if $(ONCE),--once)

demo-starting: $(VENV)/.runtime
	$(BIN)/python -m demo --starting $(if $(ONCE),--once)

serve: $(VENV)/.runtime
	$(BIN)/python -m app

# The quick tests, in the words of their markers, which pyproject.toml explains.
QUICK := smoke or not (slow or postgres or redis or objects or mlflow or browser)
# More processes than two cores have: many tests wait for clocks, deaths and other processes. Each
# imports all that is tested, and has servers of its own: four take a tenth more processor time,
# which is worth it where tests that wait are among them. The quick ones wait for little, and types
# are checked beside them.
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder
# Bytecode is kept, wherever that is off by default: hundreds of services start.
test test-rest test-all oldest quick-tests other-tests all-tests: export PYTHONDONTWRITEBYTECODE :=
# Each line is one command, so that a signal to make reaches it. Types take a processor a minute and
# more where mypy has kept nothing, so the tests run meanwhile.
test: checks browser
	@$(MAKE) --no-print-directory --jobs=3 contracts types quick-tests

test-rest: $(VENV)/.dev browser kernels other-tests

test-all: checks browser $(VENV)/nvflare/.made
	@$(MAKE) --no-print-directory --jobs=3 contracts types all-tests
	@test -e $(VENV)/nvflare/.made || echo "skipped: the tests in NVFlare, which could not be installed"

quick-tests: $(VENV)/.dev
	@$(BIN)/python $(PYTEST) -n 3 -m "$(QUICK)" $(ARGS)

other-tests: $(VENV)/.dev
	@$(BIN)/python $(PYTEST) -n 4 -m "not ($(QUICK))" $(ARGS)

all-tests: $(VENV)/.dev
	@$(BIN)/python $(PYTEST) -n 4 $(ARGS)

oldest: $(OLDEST)/.made browser
	@$(OLDEST)/bin/python $(PYTEST) -n 3 -m "$(QUICK)" $(ARGS)

checks: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync style kernels rewritten

kernels: $(VENV)/.dev
	@$(BIN)/python -m modelkin.core.kernels

# In a new clone the asserts of all tests are rewritten, which takes a process as long as to collect
# them: once, beside the kernels, and not in each of those that carry out tests.
rewritten: $(VENV)/.dev
	@test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only -q > /dev/null 2>&1 || true

# Without Chromium the tests of pages are left out, which one line says; where CI or
# MODELKIN_REQUIRE_BROWSER is set, make stops instead. A fresh image has no lists of
# packages: they are fetched where the first try fails.
FIND_BROWSER := command -v chromium-headless-shell chromium chromium-browser google-chrome > /dev/null
INSTALL_BROWSER := apt-get install -qq -y chromium-headless-shell > /dev/null 2>&1
browser:
	@$(FIND_BROWSER) || $(INSTALL_BROWSER) || { apt-get update -qq > /dev/null 2>&1; $(INSTALL_BROWSER); } \
	  || { echo '*** No Chromium, and none could be installed: NO PAGE IS TESTED in a browser. Try: sudo apt-get install chromium-headless-shell ***' >&2; \
	    test -z "$$CI$$MODELKIN_REQUIRE_BROWSER"; }

# They act as another user of the machine, and in a network of their own, which CI lets root alone.
root-tests: $(VENV)/.dev
	sudo $(BIN)/python -m pytest tests/sdk/core/test_kernel_writers.py tests/faults/test_live_rebinding.py

soak: $(VENV)/.dev
	SOAK=1 $(BIN)/python -m pytest -n 2 -o faulthandler_timeout=0 $$(grep -rl 'support.repetitions import' tests --include='test_*.py')
	$(BIN)/python -m tests.soak.kills
	$(BIN)/python -m tests.soak.backups
	$(BIN)/python -m tests.soak.freshness
	$(BIN)/python -m tests.soak.machines
	$(BIN)/python -m tests.soak.new_machine
	$(BIN)/python -m tests.soak.fingerprints.finding
	$(BIN)/python -m tests.soak.fingerprints.finding --share postgres
	$(BIN)/python -m tests.soak.fingerprints.finding --share redis
	$(BIN)/python -m tests.soak.fingerprints.flood
	$(BIN)/python -m tests.soak.many_processes
	$(BIN)/python -m tests.soak.large_bodies
	$(BIN)/python -m tests.soak.large_checkpoint
	$(BIN)/python -m tests.soak.answers_have_a_size
	$(BIN)/python -m tests.soak.bystander
	$(BIN)/python -m tests.soak.merges
	$(BIN)/python -m tests.soak.jobs_share
	$(BIN)/python -m tests.soak.kin
	$(BIN)/python -m tests.soak.constant_load
	$(BIN)/python -m tests.soak.reads_see_writes
	$(BIN)/python -m tests.soak.restarts
	$(BIN)/python -m tests.soak.proxy
	$(BIN)/python -m tests.soak.version_before
	$(BIN)/python -m tests.soak.federations.flower_engines
	$(BIN)/python -m tests.soak.federations.nvflare_simulator

flower: $(VENV)/.dev
	$(BIN)/python -m tests.soak.federations.flower_engines

nvflare: $(VENV)/.dev
	$(BIN)/python -m tests.soak.federations.nvflare_simulator

# NVFlare over the packages of the environment: where pip cannot have it, one line says so, its tests
# are left out, and the next run tries again.
$(VENV)/nvflare/.made: tests/soak/federations/nvflare_simulator.py | $(VENV)/.dev
	@$(BIN)/python -m tests.soak.federations.nvflare_simulator --only-make && touch $@ || true

lint: style contracts types

types: $(VENV)/.dev
	$(BIN)/mypy

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Import contracts, and files that are generated from others.
contracts: $(VENV)/.dev
	$(BIN)/lint-imports
	$(BIN)/python client_sdk/unasync.py --check
	$(BIN)/python -m docs.generate --check

# Needs the network, since the advisories are PyPI's; in an environment of its own, beside the pins.
# A mirror of PyPI has none: there `make audit ADVISORIES=osv` asks osv.dev, or OSV_URL.
ADVISORIES ?= pypi
OSV_URL ?= https://api.osv.dev/v1/query
audit: $(VENV)/.python
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	accepted="$$($(BIN)/python -m tests.packaging.accepted_advisories)" && $(VENV)/audit/bin/pip-audit --strict --disable-pip --no-deps --vulnerability-service $(ADVISORIES) --osv-url $(OSV_URL) --requirement constraints.txt $$accepted

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# Cells that docs/studies/ has are not made again: delete those that should be. A gate that is missed
# stops nothing; the exit status says it at the end.
studies: $(VENV)/.dev
	@missed=0; for each in all lines; do $(BIN)/python -m studies $$each || missed=1; done; exit $$missed

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.dev
	$(BIN)/python -m docs.generate
	$(BIN)/python -m mkdocs build --strict -q
	@echo 'Open site/index.html; with its search: $(BIN)/python -m http.server -d site 8080'

# The section of a release, from changes/, whose files it deletes.
changelog: $(VENV)/.dev
	@test -n "$(VERSION)" || { echo 'Say which release: make changelog VERSION=0.3.0'; exit 1; }
	$(BIN)/towncrier build --yes --version $(VERSION)

# Each wheel is built from its sdist, with the pinned backend. MODELKIN_PROJECT_URL is the public
# address of the repository, which their metadata name. -P: no folder here is imported.
DIST ?= dist
BUILD := $(BIN)/python -P -m build --no-isolation --outdir $(DIST)
wheels: $(VENV)/.python
	$(PIP) build hatchling
	rm -f $(DIST)/modelkin-* $(DIST)/modelkin_service-*
	$(BUILD) client_sdk
	$(BUILD) .

# These very files, whatever an index or a cache has, with the pins of what they require.
TRIED := $(VENV)/tried
try-wheels: wheels
	$(PYTHON) -m venv --clear $(TRIED)
	$(TRIED)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt $(DIST)/modelkin-*.whl $(DIST)/modelkin_service-*.whl
	$(TRIED)/bin/python -m pip check
	$(TRIED)/bin/python -P -c 'from modelkin import Client, Support; client = Client(":memory:"); client.ensure_space("s", num_parameters=90); client.put_many("s", [(name, Support.from_indices([*name.encode()], 90)) for name in ("AD", "AE", "BC")]); print(client.neighbors("s", "AD")); client.close()'

image:
	docker build --tag modelkin .

# What a release asks for: where a tag began this, that it is of this version, whose changes are joined.
release: try-wheels
	$(BIN)/python -m tests.packaging.release

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "modelkin needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Say which: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml client_sdk/pyproject.toml constraints.txt
	$(PIP) -e './client_sdk[fast,gguf,torch,sharing]' -e '.[demo,clustering,objects]'
	@$(COMPILE)
	@touch $@

# All of .runtime, too: to install that first would take pip half as long again.
$(VENV)/.dev: $(VENV)/.python pyproject.toml client_sdk/pyproject.toml constraints.txt
	$(PIP) -e './client_sdk[fast,gguf,torch,sharing,datasketch,pandas,networkx,plots,plotly,huggingface,lightning]' -e '.[demo,clustering,cyclonedx,otel,objects,dev]'
	$(PIP) --no-deps $(FLOWER)
	@$(COMPILE)
	@touch $(VENV)/.runtime $@

# torch comes from the constraints: where only one of its builds can be had, no other is tried.
$(OLDEST)/.made: $(VENV)/.dev tests/packaging/lowest_versions.py
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	echo "torch; python_version < '3'" > $(OLDEST)/without-torch.txt
	$(BIN)/python -m tests.packaging.lowest_versions > $(OLDEST)/published.txt
	$(OLDEST)/bin/uv pip compile --quiet --resolution lowest-direct --only-binary :all: --python $(OLDEST)/bin/python \
	  --override $(OLDEST)/without-torch.txt $(OLDEST)/published.txt -o $(OLDEST)/lowest.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(OLDEST)/lowest.txt $(FLOWER) -e ./client_sdk -e .
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLDEST)/lowest.txt "$$(grep ^torch== constraints.txt)"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -e './client_sdk[fast,gguf,torch,sharing,datasketch]' -e '.[demo,clustering,cyclonedx,otel,objects,dev,bench]'
	@$(COMPILE)
	@touch $@

clean:
	rm -rf $(VENV) modelkin-data .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
