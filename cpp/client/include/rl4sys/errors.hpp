#pragma once

#include <stdexcept>

#include "rl4sys/export.hpp"

namespace rl4sys {

/// Invalid client settings, detected in the config file or by the server. The message says what to change.
class RL4SYS_API ConfigError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace rl4sys
