#pragma once

#include "spec.hpp"
#include "config_values.hpp"

namespace rl4sys::client {

/// Settings of a client's config that define the observation and action spaces; null if not given.
struct Sizes {
    const Json& observation;
    const Json& action;
    bool mask = false;
};

/// Build the spec from the observation and action settings.
/// \throws ConfigError if a setting is missing or invalid.
Spec makeSpec(const Sizes& sizes);

}  // namespace rl4sys::client
