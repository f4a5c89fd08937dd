#!/usr/bin/env bash
# Install the build dependencies of the C++ client on Debian: gRPC, protobuf, JSON and test libraries, and Box2D for the
# Lunar Lander example.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

wanted=(cmake g++ libbox2d-dev libgrpc++-dev libgtest-dev libprotobuf-dev libssl-dev nlohmann-json3-dev pkg-config
  protobuf-compiler protobuf-compiler-grpc zlib1g-dev)
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then install_system_packages "${missing[@]}"; fi
