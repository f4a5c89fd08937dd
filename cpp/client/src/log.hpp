#pragma once

#include <functional>
#include <string_view>

#include "rl4sys/agent.hpp"

namespace rl4sys::client {

/// Log function; can be called from any thread.
using Log = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace rl4sys::client
