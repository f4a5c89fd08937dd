#pragma once

#include <span>
#include <string>

#include "config_values.hpp"

namespace rl4sys::client {

/// Current version of the config format.
inline constexpr int configVersion = 1;

/// Convert settings of an older format to the current one; current settings are returned unchanged.
///
/// There are two older formats. The first has `algorithm_name`, and the observation and action sizes in
/// `algorithm_parameters`. The second has a string as `algorithm`, with `network_architecture`, `training` and
/// `communication`.
/// \param native names of all settings in the current format.
/// \throws ConfigError if a setting is unknown or cannot be converted.
Json migrate(const Json& settings, std::span<const std::string> native);

}  // namespace rl4sys::client
