#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rl4sys/agent.hpp"

/// \file
/// A stand-in for the agent, linked instead of the library: it decides as told and remembers what it was given.

namespace scripted {

struct Step {
    std::vector<float> observation;
    std::int64_t act = 0;
    std::optional<double> reward;
};

struct Ended {
    std::vector<Step> steps;
    bool truncated = false;
};

/// Of all agents; tests begin with `script = {}`.
struct Script {
    std::int64_t act = 1;
    std::optional<std::uint64_t> version = 1;  ///< None: there is no model.
    std::uint64_t requests = 0;
    std::vector<Ended> ended;
};

extern Script script;

/// An agent of any name: the script decides.
rl4sys::RL4SysAgent makeAgent();

}  // namespace scripted
