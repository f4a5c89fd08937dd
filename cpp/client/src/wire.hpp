#pragma once

#include <cstdint>

namespace rl4sys::client {

/// The version of the conversation; both sides must speak the same.
inline constexpr std::uint32_t protocol = 1;

/// The most one message may take in either direction.
inline constexpr int maxMessageBytes = 32 * 1024 * 1024;

}  // namespace rl4sys::client
