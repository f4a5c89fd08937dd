#pragma once

#include <stdexcept>

#include "rl4sys/export.hpp"

namespace rl4sys {

/// A client's settings cannot be used: the file, or what the server says of them. Says what to change.
class RL4SYS_API ConfigError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace rl4sys
