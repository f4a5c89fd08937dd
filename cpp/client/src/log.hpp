#pragma once

#include <functional>
#include <string_view>

#include "rl4sys/agent.hpp"

namespace rl4sys::client {

/// Where the client says what it does; may be called by any thread.
using Log = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace rl4sys::client
