#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rl4sys/agent.hpp"
#include "client_config.hpp"

namespace rl4sys::client {

/// Selects a legal action if the policy cannot decide: the result of the host's fallback function or the fallback
/// action of the config, if legal; otherwise the first legal action, or zeros clipped to the bounds.
class Fallback {
public:
    Fallback(const ClientConfig& config, const AgentOptions& options);

    /// Write a discrete fallback action to `acts`, one entry per dimension. The error of a failed fallback function is
    /// appended to `reason`.
    void chooseDiscrete(std::span<const float> observation, std::span<const bool> mask, std::span<std::int64_t> acts,
                        std::string& reason) const;

    /// Write a continuous fallback action to `values`. The error of a failed fallback function is appended to `reason`.
    void chooseContinuous(std::span<const float> observation, std::span<float> values, std::string& reason) const;

private:
    bool isLegal(std::span<const float> values) const noexcept;

    const ClientConfig& config_;
    decltype(AgentOptions::fallbackActs) actsFunction_;
    decltype(AgentOptions::fallbackValues) valuesFunction_;
};

/// Clip the values in `drawn` to the bounds of `action` and write them to `values`.
void legalize(const Box& action, std::span<const float> drawn, std::span<float> values) noexcept;

}  // namespace rl4sys::client
