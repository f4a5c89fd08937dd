#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rl4sys::client {

/// JSON object in file order: if two names refer to the same setting, the later one is used.
using Json = nlohmann::ordered_json;

/// Return a value as JSON text, shortened for error messages.
std::string shown(const Json& value);

/// Return "; did you mean x?" with the most similar known word, or a full stop if none is similar.
std::string didYouMean(std::string_view word, std::span<const std::string> known);

/// Reject a setting.
/// \throws ConfigError with the setting, its value and the expected value.
[[noreturn]] void refuse(const std::string& setting, const Json& value, const std::string& expected);

// Conversions of setting values, as lenient as in the Python client: 5.0 and "5" are integers, "yes" is true. An
// invalid value throws std::invalid_argument; its message says which value is expected.

std::uint64_t toInteger(const Json& value, std::uint64_t least = 0);
double toNumber(const Json& value);
bool toFlag(const Json& value);
const std::string& toText(const Json& value);
const Json& toBlock(const Json& value);

/// Numbers in C order with their shape.
struct NumberArray {
    std::vector<std::size_t> shape;  ///< Empty for a single number.
    std::vector<float> numbers;
};

/// Convert a number, or nested lists with equal lengths at each level.
/// \throws std::invalid_argument if an element is not a number or the lengths differ.
NumberArray toNumbers(const Json& value);

/// Remove surrounding white space.
std::string_view trimmed(std::string_view text) noexcept;

/// Convert ASCII letters to lower case.
std::string lowered(std::string_view text);

}  // namespace rl4sys::client
