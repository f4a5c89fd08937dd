#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec.hpp"

/// \file
/// A client's settings. What each of them means is said where the Python client keeps its own, `ClientConfig`, and in
/// docs/config.md; both clients read the same files alike.

namespace rl4sys::client {

/// Encrypt, and know each other by certificate: absolute paths of PEM files, empty if not given.
struct TlsSettings {
    std::string ca;
    std::string cert;
    std::string key;
};

struct ServerSettings {
    std::string address = "localhost:50051";
    std::string token;  ///< As it is written, or the first line of `token_file`; empty for none.
    std::optional<TlsSettings> tls;
    double timeoutSeconds = 10;
    double actTimeoutSeconds = 1;
};

struct OutboxSettings {
    std::size_t memoryBytes = std::size_t{64} << 20;
    std::filesystem::path spool;  ///< Absolute; empty for the usual place.
    std::size_t spoolBytes = std::size_t{256} << 20;
};

struct Settings {
    std::string clientId;
    std::string policyId;
    std::optional<std::uint64_t> seed;
    Spec spec;
    std::string learnerSettings;  ///< JSON: what the server is told about the learner.
    std::optional<std::uint64_t> maxStaleness;
    std::optional<std::uint64_t> pinVersion;
    ServerSettings server;
    bool remote = false;
    std::size_t maxTrajLength = 1000;
    std::size_t sendFrequency = 1;
    double patienceSeconds = 0;  ///< Never longer than clocks can count, like `flushSeconds`.
    double flushSeconds = 5;
    std::vector<std::int64_t> fallbackChoices;  ///< A legal one for each part, if the file has any; else empty.
    std::vector<float> fallbackValues;          ///< The same for actions that are numbers.
    OutboxSettings outbox;
};

/// The settings in a JSON file, old forms included, with `overrides` in place of what it says.
/// \param overrides a JSON object, or nothing; its blocks replace setting by setting, and its names may be dotted.
/// \throws ConfigError
Settings loadSettings(const std::filesystem::path& path, const std::string& overrides);

}  // namespace rl4sys::client
