#!/usr/bin/env bash
# Run the tests of the C++ client with each given set of sanitizers, for example: sanitize.sh address,undefined thread
set -euo pipefail
cd "$(dirname "$0")/.."
# gRPC is not built with sanitizers, so the thread sanitizer reports false data races in it.
export TSAN_OPTIONS="suppressions=$PWD/cpp/tests/tsan_suppressions.txt ignore_noninstrumented_modules=1 halt_on_error=1"
for sanitizers in "$@"; do
  build=build/cpp-${sanitizers//,/-}
  cmake -S cpp -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g" \
    -DRL4SYS_SANITIZE="$sanitizers"
  cmake --build "$build" -j "$(nproc)"
  ctest --test-dir "$build" --output-on-failure
done
