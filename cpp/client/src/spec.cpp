#include "spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "bounded_json.hpp"
#include "rl4sys/core/heads.hpp"

namespace rl4sys::client {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 10> dtypes = {"float32", "float64", "bool",   "uint8", "int8",
                                                     "uint16",  "int16",   "uint32", "int32", "int64"};
constexpr std::size_t maxAxes = 8;

/// Maximum number of elements, so that products with element sizes and trajectory lengths do not overflow.
constexpr std::size_t maxElements = std::size_t{1} << 31;

constexpr float infinity = std::numeric_limits<float>::infinity();

void require(bool condition, const std::string& message) {
    if (!condition) throw std::invalid_argument(message);
}

std::string toText(const std::vector<std::size_t>& shape) { return json(shape).dump(); }

void checkShape(const std::vector<std::size_t>& shape) {
    require(shape.size() <= maxAxes,
            "a box has " + std::to_string(shape.size()) + " axes; the maximum is " + std::to_string(maxAxes));
    std::size_t numbers = 1;
    for (const std::size_t length : shape) {
        const bool fits = length <= maxElements && (numbers *= length) <= maxElements;
        require(fits, "a box of shape " + toText(shape) + "; the maximum is 2**31 elements");
    }
}

void checkBound(const std::string& name, const std::vector<float>& bound, float never, const Box& box) {
    require(bound.size() == 1 || bound.size() == box.size(),
            name + " has " + std::to_string(bound.size()) + " values; a box of shape " + toText(box.shape) +
                " takes 1 or " + std::to_string(box.size()));
    const auto boundsNothing = [never](float value) { return std::isnan(value) || value == never; };
    require(std::none_of(bound.begin(), bound.end(), boundsNothing),
            name + " of a box holds NaN or " + (never > 0 ? "inf" : "-inf") + "; omit " + name +
                " for an unbounded box");
}

json boundToJson(const std::vector<float>& bound) {
    json values = json::array();
    // JSON has no infinity; null means that there is no bound.
    for (const float value : bound) values.push_back(std::isfinite(value) ? json(value) : json());
    return values;
}

json boxToJson(const Box& box) {
    return {{"kind", "box"},
            {"shape", box.shape},
            {"dtype", box.dtype},
            {"low", boundToJson(box.low)},
            {"high", boundToJson(box.high)}};
}

std::size_t sizeFromJson(const json& value) {
    const bool whole = value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
    require(whole, quoted(value) + " is not a size");
    return value.get<std::size_t>();
}

std::vector<float> boundFromJson(const json& values, float absent) {
    std::vector<float> bound;
    for (const json& value : values.get_ref<const json::array_t&>()) {
        bound.push_back(value.is_null() ? absent : narrowed(value.get<double>()));
    }
    return bound;
}

Box boxFromJson(const json& value) {
    require(value.at("kind") == "box", "a space of kind " + quoted(value.at("kind")) +
                                           "; expected box, or for actions also discrete or multi_discrete");
    Box box;
    for (const json& length : value.at("shape").get_ref<const json::array_t&>()) {
        box.shape.push_back(sizeFromJson(length));
    }
    box.dtype = value.at("dtype").get<std::string>();
    box.low = boundFromJson(value.at("low"), -infinity);
    box.high = boundFromJson(value.at("high"), infinity);
    return box;
}

Spec specFromJson(const json& value) {
    Spec spec;
    const json& action = value.at("action");
    if (action.at("kind") == "discrete") {
        spec.actionCount = sizeFromJson(action.at("choices"));
        require(spec.actionCount > 0, "a discrete space needs at least 1 action");
    } else if (action.at("kind") == "multi_discrete") {
        std::vector<std::size_t> parts;
        for (const json& part : action.at("choices").get_ref<const json::array_t&>()) {
            parts.push_back(sizeFromJson(part));
        }
        require(!parts.empty() && std::ranges::count(parts, 0U) == 0,
                "a MultiDiscrete space needs at least 1 dimension, and at least 1 action per dimension");
        spec.setMultiDiscrete(std::move(parts));
    } else {
        spec.action = boxFromJson(action);
    }
    for (const auto& [name, box] : value.at("observation").get_ref<const json::object_t&>()) {
        spec.observation.emplace_back(name, boxFromJson(box));
    }
    return spec;
}

bool isMask(const std::pair<std::string, Box>& named) { return named.first == maskName; }

}  // namespace

float narrowed(double value) noexcept {
    const bool beyond = std::fabs(value) > std::numeric_limits<float>::max();
    if (beyond) return std::signbit(value) ? -infinity : infinity;
    return static_cast<float>(value);
}

std::size_t Box::size() const noexcept {
    return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

void Box::check() const {
    require(std::ranges::count(dtypes, dtype) > 0, "a box has the unknown dtype '" + shortened(dtype) + "'");
    checkShape(shape);
    checkBound("low", low, infinity, *this);
    checkBound("high", high, -infinity, *this);
}

void Spec::setMultiDiscrete(std::vector<std::size_t> parts) {
    // Saturate above the limit that `check` enforces instead of wrapping around to 0.
    const auto add = [](std::size_t sum, std::size_t part) {
        return std::min(sum, maxElements + 1) + std::min(part, maxElements + 1);
    };
    actionCount = std::accumulate(parts.begin(), parts.end(), std::size_t{0}, add);
    multiDiscrete = std::move(parts);
}

std::span<const std::size_t> Spec::parts() const noexcept {
    if (!multiDiscrete.empty()) return multiDiscrete;
    return {&actionCount, actionCount > 0 ? std::size_t{1} : 0};
}

bool Spec::isLegal(std::span<const std::int64_t> action, std::span<const bool> mask) const noexcept {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < action.size(); ++i) {
        if (action[i] < 0 || static_cast<std::uint64_t>(action[i]) >= parts()[i]) return false;
        if (!mask.empty() && !mask[begin + static_cast<std::size_t>(action[i])]) return false;
        begin += parts()[i];
    }
    return true;
}

bool Spec::hasLegalAction(std::span<const bool> mask) const noexcept {
    std::size_t begin = 0;
    for (const std::size_t part : parts()) {
        if (heads::ActionMask{mask}.part(begin, part).first() == part) return false;
        begin += part;
    }
    return true;
}

void Spec::firstLegal(std::span<const bool> mask, std::span<std::int64_t> action) const noexcept {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < action.size(); ++i) {
        action[i] = static_cast<std::int64_t>(heads::ActionMask{mask}.part(begin, parts()[i]).first());
        begin += parts()[i];
    }
}

bool Spec::masked() const noexcept { return std::any_of(observation.begin(), observation.end(), isMask); }

std::size_t Spec::inputSize() const noexcept {
    const auto add = [](std::size_t sum, const auto& named) { return sum + (isMask(named) ? 0 : named.second.size()); };
    return std::accumulate(observation.begin(), observation.end(), std::size_t{0}, add);
}

void Spec::check() const {
    for (const auto& [name, box] : observation) box.check();
    action.check();
    require(actionCount <= maxElements, std::to_string(actionCount) + " discrete actions; the maximum is 2**31");
    require(!std::all_of(observation.begin(), observation.end(), isMask),
            "the spec has no observation besides the mask");
    const auto mask = std::find_if(observation.begin(), observation.end(), isMask);
    if (mask == observation.end()) return;
    require(actionCount > 0, "an action mask needs a discrete action space, and this one is continuous");
    require(mask->second.dtype == "bool" && mask->second.shape == std::vector{actionCount},
            "the mask is " + mask->second.dtype + " of shape " + toText(mask->second.shape) +
                "; expected bool of shape [" + std::to_string(actionCount) + "]");
}

json Spec::toJson() const {
    json boxes = json::object();
    for (const auto& [name, box] : observation) boxes[name] = boxToJson(box);
    const json one = {{"kind", "discrete"}, {"choices", actionCount}};
    const json all = multiDiscrete.empty() ? one : json{{"kind", "multi_discrete"}, {"choices", multiDiscrete}};
    return {{"observation", boxes}, {"action", actionCount > 0 ? all : boxToJson(action)}};
}

Spec Spec::fromJson(const json& value) {
    try {
        Spec spec = specFromJson(value);
        spec.check();
        return spec;
    } catch (const json::exception& problem) {
        throw std::invalid_argument(std::string("not a spec: ") + problem.what());
    } catch (const std::invalid_argument& problem) {
        throw std::invalid_argument(std::string("not a spec: ") + problem.what());
    }
}

}  // namespace rl4sys::client
