#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rl4sys/agent.hpp"

/// \file
/// Replacement of the agent for tests, linked instead of the library. Returns scripted actions and records its inputs.

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

/// Scripted actions and recorded inputs of all agents. Each test resets them with `script = {}`.
struct Script {
    std::int64_t act = 1;
    std::optional<std::uint64_t> version = 1;  ///< Model version; empty if there is no model.
    std::uint64_t requests = 0;                ///< Number of requested actions.
    std::vector<EndedTrajectory> ended;
};

extern Script script;

/// Create an agent that follows the script.
rl4sys::RL4SysAgent makeAgent();

}  // namespace scripted
