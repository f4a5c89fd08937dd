#pragma once

#include <string>
#include <string_view>

/// \file
/// Deltas between two snapshots; same format as `rl4sys.wire.delta` in Python.

namespace rl4sys::client {

/// Return the SHA-256 digest of `content` (32 bytes).
std::string digest(std::string_view content);

/// Apply a compressed delta to `base`. Output is limited to the size of `base`, even for malicious input.
/// \throws std::invalid_argument if the delta cannot be decompressed or its length differs from `base`.
std::string applyDelta(std::string_view base, std::string_view compressed);

}  // namespace rl4sys::client
