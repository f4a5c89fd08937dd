#pragma once

#include <string>
#include <string_view>

/// \file
/// The bytes of one snapshot as their difference from another's: `rl4sys.wire.delta` in Python.

namespace rl4sys::client {

/// SHA-256, as 32 bytes.
std::string digest(std::string_view content);

/// What `compressed` turns `base` into; never more bytes than `base` has, whatever `compressed` claims.
/// \throws std::invalid_argument if it cannot be read or is of another length.
std::string applyDifference(std::string_view base, std::string_view compressed);

}  // namespace rl4sys::client
