#include "spaces.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rl4sys/errors.hpp"

namespace rl4sys::client {

namespace {

using Names = std::set<std::string_view>;

constexpr std::array<std::string_view, 9> dtypes = {"float32", "int64", "bool",   "uint8", "int8",
                                                    "int16",   "int32", "uint16", "uint32"};

constexpr float infinity = std::numeric_limits<float>::infinity();

std::string listOfDtypes() {
    std::string list;
    for (const std::string_view dtype : dtypes) list += (list.empty() ? "" : ", ") + std::string(dtype);
    return list;
}

/// Return true if the block contains the required setting and no settings other than the optional ones.
bool hasOnly(const Json& block, std::string_view required, const Names& optional) {
    const auto isKnown = [&](const auto& item) { return item.key() == required || optional.contains(item.key()); };
    const auto items = block.items();
    return block.contains(required) && std::all_of(items.begin(), items.end(), isKnown);
}

Json memberOf(const Json& block, const char* name) { return block.value(name, Json()); }

bool isCount(const Json& value) { return value.is_number_unsigned() && value > 0; }

std::vector<std::size_t> shapeOf(const Json& written, const std::string& at) {
    const Json lengths = written.is_array() ? written : Json::array({written});
    if (lengths.empty() || !std::all_of(lengths.begin(), lengths.end(), isCount)) {
        refuse(at, written, "expected a size such as 8, or a shape such as [84, 84, 4]");
    }
    return lengths.get<std::vector<std::size_t>>();
}

std::vector<float> boundOf(const Json& written, float otherwise, const std::string& at) {
    if (written.is_null()) return {otherwise};
    std::vector<float> bound;
    try {
        bound = toNumbers(written).numbers;
    } catch (const std::invalid_argument&) {
        refuse(at, written, "expected a number or a list of numbers");
    }
    const auto isFirst = [&](float value) { return value == bound.front(); };
    if (!bound.empty() && std::all_of(bound.begin(), bound.end(), isFirst)) return {bound.front()};
    return bound;
}

void readBounds(Box& box, const Json& block, const std::string& at) {
    box.low = boundOf(memberOf(block, "low"), -infinity, at + ".low");
    box.high = boundOf(memberOf(block, "high"), infinity, at + ".high");
}

Box checked(const Box& box, const std::string& at) {
    try {
        box.check();
    } catch (const std::invalid_argument& problem) {
        throw ConfigError(at + ": " + problem.what());
    }
    return box;
}

std::string dtypeOf(const Json& written, const std::string& at) {
    const bool known = written.is_string() && std::find(dtypes.begin(), dtypes.end(), toText(written)) != dtypes.end();
    if (!known) refuse(at + ".dtype", written, "expected one of " + listOfDtypes());
    return toText(written);
}

Box observationBox(const Json& written, const std::string& at) {
    Box box;
    if (!written.is_object()) {
        box.shape = shapeOf(written, at);
        return checked(box, at);
    }
    if (!hasOnly(written, "shape", {"dtype", "low", "high"})) {
        refuse(at, written, "expected a block with shape and optionally dtype, low and high");
    }
    box.dtype = dtypeOf(written.value("dtype", Json("float32")), at);
    box.shape = shapeOf(written["shape"], at);
    readBounds(box, written, at);
    return checked(box, at);
}

void readObservation(Spec& spec, const Json& written) {
    if (!written.is_object() || written.contains("shape")) {
        spec.observation.emplace_back(stateName, observationBox(written, "observation"));
        return;
    }
    if (written.empty()) throw ConfigError("observation is an empty block; write a size for each name");
    for (const auto& [name, part] : written.items()) {
        spec.observation.emplace_back(name, observationBox(part, "observation." + name));
    }
}

void readAction(Spec& spec, const Json& written) {
    if (written.is_object()) {
        if (!hasOnly(written, "size", {"low", "high"})) {
            refuse("action", written, "expected a block with size and optionally low and high");
        }
        spec.action.shape = shapeOf(written["size"], "action.size");
        readBounds(spec.action, written, "action");
        spec.action = checked(spec.action, "action");
        return;
    }
    const Json counts = written.is_array() ? written : Json::array({written});
    if (counts.empty() || !std::all_of(counts.begin(), counts.end(), isCount)) {
        refuse("action", written,
               "expected the number of discrete actions, a list of numbers (MultiDiscrete), or a block with size "
               "(Box)");
    }
    if (written.is_array()) {
        spec.setMultiDiscrete(counts.get<std::vector<std::size_t>>());
    } else {
        spec.actionCount = written.get<std::size_t>();
    }
}

/// Add the action mask as an observation. The size of the mask follows from the action space; a size in the file is
/// ignored.
void addMask(Spec& spec) {
    if (spec.actionCount == 0) {
        throw ConfigError("mask is true, but the action is continuous; only discrete actions can be masked");
    }
    std::erase_if(spec.observation, [](const auto& named) { return named.first == maskName; });
    spec.observation.emplace_back(maskName, Box{{spec.actionCount}, "bool", {0.0f}, {1.0f}});
}

[[noreturn]] void refuseMissing(const Sizes& sizes) {
    const char* subject = !sizes.action.is_null()        ? "observation is"
                          : !sizes.observation.is_null() ? "action is"
                                                         : "observation and of action are";
    throw ConfigError(std::string("the size of ") + subject +
                      " missing from the config. Give both sizes in the config or in AgentOptions::settings, such as "
                      R"({"observation": 8, "action": 4} (length of the observation, number of discrete actions))");
}

}  // namespace

Spec makeSpec(const Sizes& sizes) {
    Spec spec;
    if (!sizes.observation.is_null()) readObservation(spec, sizes.observation);
    if (!sizes.action.is_null()) readAction(spec, sizes.action);
    if (sizes.observation.is_null() || sizes.action.is_null()) refuseMissing(sizes);
    if (sizes.mask || spec.masked()) addMask(spec);
    std::ranges::sort(spec.observation, {}, &std::pair<std::string, Box>::first);
    try {
        spec.check();
    } catch (const std::invalid_argument& problem) {
        throw ConfigError(std::string("observation and action: ") + problem.what());
    }
    return spec;
}

}  // namespace rl4sys::client
