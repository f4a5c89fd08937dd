#pragma once

#include <cstdint>
#include <vector>

#include "rl4sys/program.hpp"

namespace rl4sys::client {

/// Decide once with a policy of any size that a system may have.
inline void decideOnce(const Program& program) {
    // Attention takes the square of them.
    constexpr std::size_t largest = 10'000;
    if (program.numbers() > largest || program.memorySize() > largest) return;
    const std::vector<float> row(program.inputSize(), 0.5f);
    std::vector<float> memory(program.memorySize(), 0.25f);
    Draws draws;
    Scratch scratch;
    if (program.discrete()) {
        std::vector<std::int64_t> action(program.actionSize());
        program.decide(row, {}, draws, scratch, action, memory);
    } else {
        std::vector<float> action(program.actionSize());
        program.decide(row, draws, scratch, action, memory);
    }
}

}  // namespace rl4sys::client
