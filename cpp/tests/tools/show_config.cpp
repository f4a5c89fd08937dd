#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "rl4sys/errors.hpp"
#include "seeds.hpp"
#include "client_config.hpp"

/// Program that prints the typed settings of a client's config file as JSON, for comparison with the Python client.
///
///     show_config FILE [OVERRIDES]

namespace {

using nlohmann::json;
using namespace rl4sys::client;

template <class Value>
json orNull(const std::optional<Value>& value) {
    return value ? json(*value) : json();
}

json toJson(const TlsConfig& tls) { return {{"ca", tls.ca}, {"cert", tls.cert}, {"key", tls.key}}; }

json toJson(const ServerConfig& server) {
    return {{"address", server.address},
            {"token", server.token},
            {"tls", server.tls ? toJson(*server.tls) : json()},
            {"timeout_seconds", server.timeoutSeconds},
            {"act_timeout_seconds", server.actTimeoutSeconds}};
}

json toJson(const OutboxConfig& outbox) {
    return {{"memory_bytes", outbox.memoryBytes},
            {"spool", outbox.spool.string()},
            {"spool_bytes", outbox.spoolBytes}};
}

json toJson(const ClientConfig& settings) {
    return {{"client_id", settings.clientId},
            {"policy_id", settings.policyId},
            {"seed", orNull(settings.seed)},
            {"draws_key", settings.seed ? json(drawsKey(*settings.seed)) : json()},
            {"spec", settings.spec.toJson()},
            {"learner_settings", json::parse(settings.learnerSettings)},
            {"max_staleness", orNull(settings.maxStaleness)},
            {"pin_version", orNull(settings.pinVersion)},
            {"server", toJson(settings.server)},
            {"remote", settings.remote},
            {"max_traj_length", settings.maxTrajLength},
            {"send_frequency", settings.sendFrequency},
            {"patience_seconds", settings.patienceSeconds},
            {"flush_seconds", settings.flushSeconds},
            {"fallback_acts", settings.fallbackActs},
            {"fallback_values", settings.fallbackValues},
            {"outbox", toJson(settings.outbox)}};
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2 && count != 3) {
        std::cerr << "usage: show_config FILE [OVERRIDES]\n";
        return 1;
    }
    try {
        std::cout << toJson(loadClientConfig(arguments[1], count == 3 ? arguments[2] : "")).dump(2) << '\n';
        return 0;
    } catch (const rl4sys::ConfigError& problem) {
        std::cerr << problem.what() << '\n';
        return 2;
    }
}
