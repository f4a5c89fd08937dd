#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rl4sys/agent.hpp"
#include "settings.hpp"

namespace rl4sys::client {

/// What is done where the policy cannot decide, always something legal: what the program's own function says, or the
/// config's action, where that is legal; else the first legal choices, or zeros within bounds.
class Fallback {
public:
    Fallback(const Settings& settings, const AgentOptions& options);

    /// A choice for each part, written to `choices`; `reason` gets what came of the program's own function, if that
    /// failed.
    void choose(std::span<const float> observation, std::span<const bool> mask, std::span<std::int64_t> choices,
                std::string& reason) const;

    /// Numbers, written to `values`.
    void move(std::span<const float> observation, std::span<float> values, std::string& reason) const;

private:
    bool isLegal(std::span<const float> values) const noexcept;

    const Settings& settings_;
    decltype(AgentOptions::fallbackChoices) choicesFunction_;
    decltype(AgentOptions::fallbackValues) valuesFunction_;
};

/// Bring each number of an action within its bounds.
void legalize(const Box& action, std::span<const float> drawn, std::span<float> values) noexcept;

}  // namespace rl4sys::client
