# make quickstart   set up, then start a server and a system whose policy it trains, and show the result
# make test         set up, then run the tests
# make nightly      set up, then run the tests that install into new environments and build everything
# make check        set up, then format, lint, types, import rules, prose and tests
# make lint         the checks without the tests
# make cpp          build the C++ client and its examples (test with make cpp-test, cpp-sanitize, cpp-fuzz)
# make bench        measure training speed against peers and write docs/speed.md (make bench-quick: five minutes)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CORE := $(shell find cpp/core cpp/python -type f 2>/dev/null) CMakeLists.txt
CPP := build/cpp
JOBS := $(shell nproc)

.PHONY: quickstart test nightly check lint format setup cpp cpp-test cpp-sanitize cpp-fuzz bench bench-quick bench-decision bench-live \
	bench-cpp clean
.DELETE_ON_ERROR:

quickstart: $(READY)
	$(BIN)/python -m rl4sys.examples.lunar.quickstart

test: $(READY) cpp-test
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15

nightly: $(READY)
	$(BIN)/python -m pytest -m nightly --durations=0

cpp:
	bash scripts/setup_cpp.sh
	cmake -S cpp -B $(CPP) -DCMAKE_BUILD_TYPE=Release
	cmake --build $(CPP) -j $(JOBS)

cpp-test: cpp
	ctest --test-dir $(CPP) --output-on-failure -j $(JOBS)

cpp-sanitize:
	bash scripts/setup_cpp.sh
	bash scripts/sanitize.sh address,undefined thread

cpp-fuzz:
	bash scripts/setup_cpp.sh
	bash scripts/fuzz.sh

check: lint test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_prose.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(READY)

$(READY): pyproject.toml rl4sys/version.py constraints.txt scripts/setup.sh $(CORE)
	bash scripts/setup.sh $(VENV)
	touch $(READY)

bench: $(READY)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/speed_page.py

bench-quick: $(READY)
	$(BIN)/python benchmarks/speed.py --quick

bench-decision: $(READY)
	$(BIN)/python benchmarks/decision.py

bench-live: $(READY)
	$(BIN)/python benchmarks/live.py

bench-cpp: $(READY) cpp
	$(BIN)/python benchmarks/cpp_client.py
	$(BIN)/python benchmarks/block_cache.py

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
