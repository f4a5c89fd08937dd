#pragma once

#include <cstdint>

namespace rl4sys::client {

/// The key of the draws that a seed stands for: `SeedSequence([seed, 0]).generate_state(2, uint64)[1]` in numpy, so
/// that a client draws what one in Python, or a local run, draws by the same seed.
std::uint64_t drawsKey(std::uint64_t seed) noexcept;

}  // namespace rl4sys::client
