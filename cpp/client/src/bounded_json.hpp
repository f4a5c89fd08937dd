#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rl4sys::client {

/// Parse untrusted JSON with limits on depth and number of values.
/// \throws std::invalid_argument if `text` is not JSON or exceeds a limit.
nlohmann::json parseJson(std::string_view text);

/// Return at most `most` leading bytes of `text`, for error messages that quote untrusted input. Never splits a UTF-8
/// character.
std::string shortened(std::string_view text, std::size_t most = 200);

/// Return a value as JSON text, shortened for error messages.
std::string quoted(const nlohmann::json& value);

}  // namespace rl4sys::client
