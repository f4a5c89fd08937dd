#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace rl4sys::client {

/// Read a golden file written by scripts/make_golden.py.
inline std::string goldenFile(const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(RL4SYS_TEST_DATA) / "golden" / name;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace rl4sys::client
