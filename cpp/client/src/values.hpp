#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rl4sys::client {

/// What a file says, in its own order: of two names for one setting, the later counts.
using Json = nlohmann::ordered_json;

/// A value as the file has it, shortened.
std::string shown(const Json& value);

/// "; did you mean x?", or a full stop where nothing is close.
std::string didYouMean(std::string_view word, std::span<const std::string> known);

/// \throws ConfigError: what the setting is, and what it should be.
[[noreturn]] void refuse(const std::string& setting, const Json& value, const std::string& expected);

// What a value means, as leniently as the Python client takes it: 5.0 and "5" are integers, "yes" is true. A value that
// will not do is a std::invalid_argument that says what it should be.

std::uint64_t toInteger(const Json& value, std::uint64_t least = 0);
double toNumber(const Json& value);
bool toFlag(const Json& value);
const std::string& toText(const Json& value);
const Json& toBlock(const Json& value);

/// Numbers and the shape in which they stand.
struct NumberArray {
    std::vector<std::size_t> shape;  ///< Empty for a single number.
    std::vector<float> numbers;
};

/// A number, or a list, or lists of equally long lists.
NumberArray toNumbers(const Json& value);

/// Without the white space around it.
std::string_view trimmed(std::string_view text) noexcept;

/// In small letters, as far as they are English ones.
std::string lowered(std::string_view text);

}  // namespace rl4sys::client
