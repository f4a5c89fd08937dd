#pragma once

#include <cstdint>
#include <vector>

#include "rl4sys/core/program.hpp"

namespace rl4sys::client {

/// Make one decision with a policy. Very large policies are skipped.
inline void decideOnce(const Program& program) {
    // The cost of attention is quadratic in this size.
    constexpr std::size_t maxSize = 10'000;
    if (program.valueCount() > maxSize || program.memorySize() > maxSize) return;
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
