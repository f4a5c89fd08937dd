#pragma once

#include <cstdint>

namespace rl4sys::client {

/// Protocol version; client and server must use the same.
inline constexpr std::uint32_t protocol = 1;

/// Maximum message size in both directions.
inline constexpr int maxMessageBytes = 32 * 1024 * 1024;

}  // namespace rl4sys::client
