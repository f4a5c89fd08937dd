#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "learned_admission.hpp"
#include "run.hpp"

namespace block_cache {

extern const char* const usage;

/// Parsed command line.
struct Options {
    std::vector<std::string> policies = {"lru"};
    Load load{.cache = {}, .mixture = Mixture::named("mixed")};
    LearningOptions learning;
    std::optional<std::uint64_t> requests;
    double seconds = 10.0;
    std::uint64_t slice = 100'000;
    bool settle = false;
    bool json = false;
    bool help = false;
    std::filesystem::path directory = std::filesystem::temp_directory_path();
    std::filesystem::path config = "client.json";
    nlohmann::json settings = nlohmann::json::object();
};

/// Parse the command line.
/// \throws std::invalid_argument if an option is invalid.
Options parse(std::span<char*> arguments);

}  // namespace block_cache
