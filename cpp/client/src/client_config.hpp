#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec.hpp"

/// \file
/// Typed settings of a client. Each setting is documented in docs/config.md. The Python client reads the same
/// files with the same result.

namespace rl4sys::client {

/// The `server.tls` block: absolute paths of PEM files; empty if a file is not set.
struct TlsConfig {
    std::string ca;
    std::string cert;
    std::string key;
};

/// The `server` block: address and credentials of the training server.
struct ServerConfig {
    std::string address = "localhost:50051";
    std::string token;  ///< Value of `token`, or first line of the `token_file`; empty if there is no token.
    std::optional<TlsConfig> tls;
    double timeoutSeconds = 10;
    double actTimeoutSeconds = 1;
};

/// The `outbox` block: limits of unsent trajectories in memory and on disk.
struct OutboxConfig {
    std::size_t memoryBytes = std::size_t{64} << 20;
    std::filesystem::path spool;  ///< Absolute path; empty for a directory in the system's temporary directory.
    std::size_t spoolBytes = std::size_t{256} << 20;
};

/// All settings of a client.
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
    double patienceSeconds = 0;  ///< At most 1e9.
    double flushSeconds = 5;     ///< At most 1e9.
    std::vector<std::int64_t> fallbackActs;  ///< Discrete fallback action, one entry per dimension; empty if not set.
    std::vector<float> fallbackValues;       ///< Continuous fallback action; empty if not set.
    OutboxConfig outbox;
};

/// Read a client's JSON config file of the current or an older format and apply `overrides`.
/// \param overrides text of a JSON object, or empty. A block overrides only the settings in it. Names may be dotted,
///     such as `server.address`.
/// \throws ConfigError if the file or a setting is invalid.
ClientConfig loadClientConfig(const std::filesystem::path& path, const std::string& overrides);

}  // namespace rl4sys::client
