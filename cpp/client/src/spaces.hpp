#pragma once

#include "spec.hpp"
#include "values.hpp"

namespace rl4sys::client {

/// What a client's file says of what is seen and done: null where it says nothing.
struct Sizes {
    const Json& observation;
    const Json& action;
    bool mask = false;
};

/// The spec that the sizes stand for.
/// \throws ConfigError if they stand for none.
Spec makeSpec(const Sizes& sizes);

}  // namespace rl4sys::client
