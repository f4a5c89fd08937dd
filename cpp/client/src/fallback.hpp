#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rl4sys/agent.hpp"
#include "client_config.hpp"

namespace rl4sys::client {

/// Selects a legal action when the policy cannot decide: the result of the program's function or the action in the
/// config, if legal; otherwise the first legal action, or zeros clipped to the bounds.
class Fallback {
public:
    Fallback(const ClientConfig& config, const AgentOptions& options);

    /// Write one discrete action per part to `acts`. Appends the error of a failed fallback function to `reason`.
    void chooseDiscrete(std::span<const float> observation, std::span<const bool> mask, std::span<std::int64_t> acts,
                        std::string& reason) const;

    /// Write a continuous action to `values`; see `chooseDiscrete`.
    void chooseContinuous(std::span<const float> observation, std::span<float> values, std::string& reason) const;

private:
    bool isLegal(std::span<const float> values) const noexcept;

    const ClientConfig& config_;
    decltype(AgentOptions::fallbackActs) actsFunction_;
    decltype(AgentOptions::fallbackValues) valuesFunction_;
};

/// Clip an action to its bounds.
void legalize(const Box& action, std::span<const float> drawn, std::span<float> values) noexcept;

}  // namespace rl4sys::client
