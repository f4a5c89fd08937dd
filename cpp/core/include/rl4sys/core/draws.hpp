#pragma once

#include <cstddef>
#include <cstdint>

namespace rl4sys {

/// Return the value scrambled by the finalizer of SplitMix64.
constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

/// Counter-based stream of uniform random numbers: draw number `counter` of `key` is always the same.
///
/// The two integers are the whole state, so the stream can be saved, restored and advanced at no cost.
struct Draws {
    std::uint64_t key = 0;
    std::uint64_t counter = 0;

    /// Return the next draw, in [0, 1) with 53 random bits.
    constexpr double uniform() noexcept {
        ++counter;
        return static_cast<double>(mix64(key + 0x9E3779B97F4A7C15ULL * counter) >> 11) * 0x1.0p-53;
    }

    /// Return the next `count` draws as a separate stream and skip them in this one.
    constexpr Draws take(std::uint64_t count) noexcept {
        const Draws taken = *this;
        counter += count;
        return taken;
    }
};

}  // namespace rl4sys
