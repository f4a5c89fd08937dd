#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "rl4sys/errors.hpp"
#include "seeds.hpp"
#include "settings.hpp"

/// Prints the settings in a client's file as JSON, so that other clients' reading of it can be compared.
///
///     show_settings FILE [OVERRIDES]

namespace {

using nlohmann::json;
using namespace rl4sys::client;

template <class Value>
json orNull(const std::optional<Value>& value) {
    return value ? json(*value) : json();
}

json toJson(const TlsSettings& tls) { return {{"ca", tls.ca}, {"cert", tls.cert}, {"key", tls.key}}; }

json toJson(const ServerSettings& server) {
    return {{"address", server.address},
            {"token", server.token},
            {"tls", server.tls ? toJson(*server.tls) : json()},
            {"timeout_seconds", server.timeoutSeconds},
            {"act_timeout_seconds", server.actTimeoutSeconds}};
}

json toJson(const OutboxSettings& outbox) {
    return {{"memory_bytes", outbox.memoryBytes},
            {"spool", outbox.spool.string()},
            {"spool_bytes", outbox.spoolBytes}};
}

json toJson(const Settings& settings) {
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
            {"fallback_choices", settings.fallbackChoices},
            {"fallback_values", settings.fallbackValues},
            {"outbox", toJson(settings.outbox)}};
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2 && count != 3) {
        std::cerr << "usage: show_settings FILE [OVERRIDES]\n";
        return 1;
    }
    try {
        std::cout << toJson(loadSettings(arguments[1], count == 3 ? arguments[2] : "")).dump(2) << '\n';
        return 0;
    } catch (const rl4sys::ConfigError& problem) {
        std::cerr << problem.what() << '\n';
        return 2;
    }
}
