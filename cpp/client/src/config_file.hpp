#pragma once

#include <filesystem>
#include <string>

#include "config_values.hpp"

namespace rl4sys::client {

/// Read a whole file.
/// \throws std::system_error if the file cannot be read.
std::string readFile(const std::filesystem::path& path);

/// Parse a text as a block of settings. `source` is the name of the text in error messages.
/// \throws ConfigError if the text is empty or not a JSON object, repeats a name, is nested too deeply or contains a
///     number that is too large.
Json parseBlock(const std::string& text, const std::string& source);

/// Read the settings in a file, merged over the settings of the files in `extends`.
/// \throws ConfigError if one of the files is missing or invalid.
Json readConfigFile(const std::filesystem::path& path);

}  // namespace rl4sys::client
