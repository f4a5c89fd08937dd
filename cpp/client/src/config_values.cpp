#include "config_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "rl4sys/errors.hpp"
#include "spec.hpp"

namespace rl4sys::client {

namespace {

constexpr std::size_t maxShownLength = 80;
constexpr std::string_view whiteSpace = " \t\n\v\f\r";
constexpr std::string_view digits = "0123456789";
constexpr double int64Limit = 0x1p63;

constexpr std::array<std::string_view, 6> trueWords = {"1", "on", "t", "true", "y", "yes"};
constexpr std::array<std::string_view, 6> falseWords = {"0", "off", "f", "false", "n", "no"};

constexpr const char* tooLarge = "the number is too large";
constexpr const char* notBoolean = "expected a number, not true or false";

bool contains(std::span<const std::string_view> words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// Return the number of matching characters (Ratcliff-Obershelp): the length of the longest common substring, plus the
/// matches to its left and to its right.
std::size_t countMatches(std::string_view left, std::string_view right) {
    std::size_t length = 0, atLeft = 0, atRight = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
        for (std::size_t j = 0; j < right.size(); ++j) {
            const auto ends = std::mismatch(left.begin() + i, left.end(), right.begin() + j, right.end());
            const auto run = static_cast<std::size_t>(ends.first - (left.begin() + i));
            if (run > length) std::tie(length, atLeft, atRight) = std::tuple(run, i, j);
        }
    }
    if (length == 0) return 0;
    return length + countMatches(left.substr(0, atLeft), right.substr(0, atRight)) +
           countMatches(left.substr(atLeft + length), right.substr(atRight + length));
}

/// Return the similarity of two names, from 0 (no common characters) to 1 (equal).
double similarity(std::string_view left, std::string_view right) {
    return 2.0 * static_cast<double>(countMatches(left, right)) / static_cast<double>(left.size() + right.size());
}

/// Return false if the lengths alone exclude a similarity of at least `least`.
bool canReachSimilarity(std::string_view left, std::string_view right, double least) {
    const auto shorter = static_cast<double>(std::min(left.size(), right.size()));
    return 2.0 * shorter >= least * static_cast<double>(left.size() + right.size()) && shorter > 0;
}

/// Remove single underscores between digits.
std::string ungrouped(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool between = i > 0 && i + 1 < text.size() && digits.find(text[i - 1]) != text.npos &&
                             digits.find(text[i + 1]) != text.npos;
        if (text[i] != '_' || !between) result += text[i];
    }
    return result;
}

/// Remove white space, digit separators and a leading plus sign, which `from_chars` does not accept.
std::string plainNumber(std::string_view text) {
    std::string plain = ungrouped(trimmed(text));
    if (plain.size() > 1 && plain.front() == '+' && plain[1] != '-') plain.erase(0, 1);
    return plain;
}

template <class Number>
std::optional<Number> read(std::string_view text) {
    Number number{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem == std::errc::result_out_of_range) throw std::invalid_argument(tooLarge);
    return problem == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

[[noreturn]] void refuseSmall(std::uint64_t least) {
    throw std::invalid_argument(least == 0 ? "expected a value greater than or equal to 0"
                                           : "expected a value greater than " + std::to_string(least - 1));
}

/// Remove a fractional part that is all zeros: `5.00` becomes `5`.
std::string_view withoutZeroFraction(std::string_view text) {
    const std::size_t point = text.find('.');
    const bool isZero = point != text.npos && point + 1 < text.size() &&
                        text.find_first_not_of('0', point + 1) == text.npos;
    return isZero ? text.substr(0, point) : text;
}

std::uint64_t integerInText(std::string_view text, std::uint64_t least) {
    std::string plain = plainNumber(withoutZeroFraction(trimmed(text)));
    if (plain.starts_with('-') && plain.find_first_not_of(digits, 1) == plain.npos && plain.size() > 1) {
        if (plain.find_first_not_of('0', 1) != plain.npos) refuseSmall(least);
        plain.erase(0, 1);
    }
    if (const auto integer = read<std::uint64_t>(plain)) return *integer;
    throw std::invalid_argument("expected an integer");
}

std::uint64_t integerInFloat(double number, std::uint64_t least) {
    if (number != std::trunc(number)) {
        throw std::invalid_argument("expected an integer");
    }
    if (std::fabs(number) >= int64Limit) throw std::invalid_argument(tooLarge);
    if (number < 0) refuseSmall(least);
    return static_cast<std::uint64_t>(number);
}

std::uint64_t anyInteger(const Json& value, std::uint64_t least) {
    if (value.is_number_float()) return integerInFloat(value.get<double>(), least);
    if (value.is_string()) return integerInText(toText(value), least);
    if (value.is_boolean()) throw std::invalid_argument(notBoolean);
    if (!value.is_number_integer()) throw std::invalid_argument("expected an integer");
    if (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) refuseSmall(least);
    return value.get<std::uint64_t>();
}

}  // namespace

std::string shown(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() <= maxShownLength) return text;
    std::size_t end = maxShownLength;
    // Do not split a multi-byte character.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return text.substr(0, end);
}

std::string didYouMean(std::string_view word, std::span<const std::string> known) {
    std::pair<double, std::string> closest(0.6, "");
    for (const std::string& name : known) {
        if (!canReachSimilarity(name, word, closest.first)) continue;
        closest = std::max(closest, std::pair(similarity(name, word), name));
    }
    return closest.second.empty() ? "." : "; did you mean " + closest.second + "?";
}

void refuse(const std::string& setting, const Json& value, const std::string& expected) {
    throw ConfigError(setting + " is " + shown(value) + "; " + expected);
}

std::uint64_t toInteger(const Json& value, std::uint64_t least) {
    const std::uint64_t integer = anyInteger(value, least);
    if (integer < least) refuseSmall(least);
    return integer;
}

double toNumber(const Json& value) {
    if (value.is_boolean()) throw std::invalid_argument(notBoolean);
    if (value.is_number()) return value.get<double>();
    if (!value.is_string()) throw std::invalid_argument("expected a number");
    if (const auto number = read<double>(plainNumber(toText(value)))) return *number;
    throw std::invalid_argument("expected a number");
}

bool toFlag(const Json& value) {
    if (value.is_boolean()) return value.get<bool>();
    const std::string word = value.is_string() ? lowered(toText(value)) : "";
    if (contains(trueWords, word) || value == 1) return true;
    if (contains(falseWords, word) || value == 0) return false;
    throw std::invalid_argument("expected true or false");
}

const std::string& toText(const Json& value) {
    if (!value.is_string()) throw std::invalid_argument("expected a string");
    return value.get_ref<const std::string&>();
}

const Json& toBlock(const Json& value) {
    if (!value.is_object()) throw std::invalid_argument("expected a block of settings");
    return value;
}

NumberArray toNumbers(const Json& value) {
    if (!value.is_array()) return {{}, {narrowed(toNumber(value))}};
    NumberArray all{{0}, {}};
    for (const Json& element : value) {
        NumberArray part = toNumbers(element);
        part.shape.insert(part.shape.begin(), all.shape.front());
        if (all.shape.front() > 0 && part.shape != all.shape) {
            throw std::invalid_argument("its lists have different lengths");
        }
        all.shape = std::move(part.shape);
        ++all.shape.front();
        all.numbers.insert(all.numbers.end(), part.numbers.begin(), part.numbers.end());
    }
    return all;
}

std::string_view trimmed(std::string_view text) noexcept {
    const std::size_t first = text.find_first_not_of(whiteSpace);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(whiteSpace) + 1 - first);
}

std::string lowered(std::string_view text) {
    std::string result(text);
    const auto lower = [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    std::transform(result.begin(), result.end(), result.begin(), lower);
    return result;
}

}  // namespace rl4sys::client
