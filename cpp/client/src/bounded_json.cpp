#include "bounded_json.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace rl4sys::client {

namespace {

using nlohmann::json;

/// Maximum nesting depth. Copying and printing JSON recurse once per level.
constexpr int maxDepth = 64;

/// Maximum number of values, because a value of two bytes of text can take a hundred bytes in memory.
constexpr std::size_t maxValues = 1'000'000;

/// Parser callback that limits depth and number of values.
class SizeLimiter {
public:
    bool operator()(int depth, json::parse_event_t event, const json&) {
        if (depth > maxDepth) {
            throw std::invalid_argument("it is nested too deeply; the maximum is " + std::to_string(maxDepth) +
                                        " levels");
        }
        if (event != json::parse_event_t::key && ++values_ > maxValues) {
            throw std::invalid_argument("it contains too many values; the maximum is " + std::to_string(maxValues));
        }
        return true;
    }

private:
    std::size_t values_ = 0;
};

bool continuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

json parseJson(std::string_view text) {
    try {
        return json::parse(text, SizeLimiter());
    } catch (const json::exception& problem) {
        throw std::invalid_argument(shortened(problem.what()));
    }
}

std::string shortened(std::string_view text, std::size_t most) {
    if (text.size() <= most) return std::string(text);
    while (most > 0 && continuesCharacter(text[most])) --most;
    return std::string(text.substr(0, most));
}

std::string quoted(const json& value) { return shortened(value.dump()); }

}  // namespace rl4sys::client
