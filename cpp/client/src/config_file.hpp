#pragma once

#include <filesystem>
#include <string>

#include "values.hpp"

namespace rl4sys::client {

/// The whole content of a file.
/// \throws std::system_error if it cannot be read.
std::string readFile(const std::filesystem::path& path);

/// The block of settings in a text, which messages call `source`. Empty text is no block.
/// \throws ConfigError if it is not JSON, names a setting twice, or holds what no config could.
Json parseBlock(const std::string& text, const std::string& source);

/// The settings in a file, with those it `extends` under them.
/// \throws ConfigError
Json readConfigFile(const std::filesystem::path& path);

}  // namespace rl4sys::client
