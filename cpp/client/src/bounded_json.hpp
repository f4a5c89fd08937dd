#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rl4sys::client {

/// What a stranger's JSON says, held to a depth and a number of values that cost little stack and memory.
/// \throws std::invalid_argument if it is not JSON, or more than that.
nlohmann::json parseJson(std::string_view text);

/// The beginning of `text`, for an error that quotes what a stranger sent; whole characters of UTF-8.
std::string shortened(std::string_view text, std::size_t most = 200);

/// The beginning of a value from `parseJson`, as JSON.
std::string quoted(const nlohmann::json& value);

}  // namespace rl4sys::client
