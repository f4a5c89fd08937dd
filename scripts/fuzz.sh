#!/usr/bin/env bash
# Fuzz the parsers of server messages: 1,000,000 inputs per fuzzer, or the number given as argument.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
if ! command -v clang++ >/dev/null; then install_system_packages clang libclang-rt-14-dev; fi
cmake -S cpp -B build/cpp-fuzz -DCMAKE_CXX_COMPILER=clang++ -DRL4SYS_FUZZ=ON -DRL4SYS_TESTS=OFF -DRL4SYS_EXAMPLES=OFF \
  -DRL4SYS_FUZZ_RUNS="${1:-1000000}"
cmake --build build/cpp-fuzz --target fuzz
