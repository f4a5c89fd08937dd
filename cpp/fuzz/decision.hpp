#pragma once

#include <vector>

#include "rl4sys/program.hpp"

namespace rl4sys::client {

/// Decide once with a policy of any size that a system may have.
inline void decideOnce(const Program& program) {
    constexpr std::size_t largest = 100'000;
    if (program.inputSize() > largest) return;
    const std::vector<float> row(program.inputSize(), 0.5f);
    Draws draws;
    Scratch scratch;
    if (program.discrete()) {
        program.decide(row, {}, draws, scratch);
    } else {
        std::vector<float> action(program.actionSize());
        program.decide(row, draws, scratch, action);
    }
}

}  // namespace rl4sys::client
