#pragma once

#include <span>
#include <string>

#include "values.hpp"

namespace rl4sys::client {

/// The version of the config format that is read.
inline constexpr int configVersion = 1;

/// Settings of an earlier form in the present one; those of the present form as they are.
///
/// Two came before. The first has `algorithm_name` and sizes among `algorithm_parameters`; the second has `algorithm`
/// as a word, and `network_architecture`, `training` and `communication` beside it.
/// \param native the present form's own names.
/// \throws ConfigError
Json migrate(const Json& settings, std::span<const std::string> native);

}  // namespace rl4sys::client
