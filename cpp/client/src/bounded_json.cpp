#include "bounded_json.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace rl4sys::client {

namespace {

using nlohmann::json;

/// Copying and printing a value take a stack frame for each level.
constexpr int mostLevels = 64;

/// Two bytes of text can become a hundred of memory.
constexpr std::size_t mostValues = 1'000'000;

/// Counts what the parser meets, and stops it where that is too much.
class Bound {
public:
    bool operator()(int depth, json::parse_event_t event, const json&) {
        if (depth > mostLevels) throw std::invalid_argument("it is nested too deep");
        if (event != json::parse_event_t::key && ++values_ > mostValues) {
            throw std::invalid_argument("it holds too many values");
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
        return json::parse(text, Bound());
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
