#pragma once

#include <cstdint>

namespace rl4sys::client {

/// Return the key of the random number stream for a seed: `SeedSequence([seed, 0]).generate_state(2, uint64)[1]` in
/// numpy. The Python client and local runs with the same seed use the same key.
std::uint64_t drawsKey(std::uint64_t seed) noexcept;

}  // namespace rl4sys::client
