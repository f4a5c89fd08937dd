#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec.hpp"

/// \file
/// Typed settings of a client. Documented in docs/config.md and in `ClientConfig` of the Python client; both clients
/// read the same files identically.

namespace rl4sys::client {

/// TLS encryption and authentication: absolute paths of PEM files, empty if not set.
struct TlsConfig {
    std::string ca;
    std::string cert;
    std::string key;
};

struct ServerConfig {
    std::string address = "localhost:50051";
    std::string token;  ///< Literal, or the first line of `token_file`; empty for none.
    std::optional<TlsConfig> tls;
    double timeoutSeconds = 10;
    double actTimeoutSeconds = 1;
};

struct OutboxConfig {
    std::size_t memoryBytes = std::size_t{64} << 20;
    std::filesystem::path spool;  ///< Absolute; empty for the default location.
    std::size_t spoolBytes = std::size_t{256} << 20;
};

struct ClientConfig {
    std::string clientId;
    std::string policyId;
    std::optional<std::uint64_t> seed;
    Spec spec;
    std::string learnerSettings;  ///< JSON object for the server: settings of the learner.
    std::optional<std::uint64_t> maxStaleness;
    std::optional<std::uint64_t> pinVersion;
    ServerConfig server;
    bool remote = false;
    std::size_t maxTrajLength = 1000;
    std::size_t sendFrequency = 1;
    double patienceSeconds = 0;  ///< Clamped to the range of clocks, like `flushSeconds`.
    double flushSeconds = 5;
    std::vector<std::int64_t> fallbackActs;  ///< Legal discrete fallback action, one entry per part; empty if not set.
    std::vector<float> fallbackValues;       ///< Continuous fallback action; empty if not set.
    OutboxConfig outbox;
};

/// Read the settings in a JSON file, including older formats, with `overrides` applied.
/// \param overrides a JSON object, or empty. Its blocks override single settings, and its names may be dotted.
/// \throws ConfigError if the file or a setting is invalid.
ClientConfig loadClientConfig(const std::filesystem::path& path, const std::string& overrides);

}  // namespace rl4sys::client
