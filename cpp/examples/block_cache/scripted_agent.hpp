#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rl4sys/agent.hpp"

/// \file
/// Scripted replacement for the agent, linked instead of the library; it records its inputs.

namespace scripted {

struct Step {
    std::vector<float> observation;
    std::int64_t act = 0;
    std::optional<double> reward;
};

struct EndedTrajectory {
    std::vector<Step> steps;
    bool truncated = false;
};

/// Shared by all agents; tests start with `script = {}`.
struct Script {
    std::int64_t act = 1;
    std::optional<std::uint64_t> version = 1;  ///< Empty: no model.
    std::uint64_t requests = 0;
    std::vector<EndedTrajectory> ended;
};

extern Script script;

/// Create an agent that follows the script.
rl4sys::RL4SysAgent makeAgent();

}  // namespace scripted
