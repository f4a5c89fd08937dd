#include "migration.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "rl4sys/errors.hpp"

namespace rl4sys::client {

namespace {

struct Rename {
    std::string_view oldName;
    std::string_view newName;  ///< Dotted.
};

using Names = std::span<const Rename>;
using Words = std::span<const std::string_view>;

constexpr std::string_view firstHandled[] = {"algorithm_name", "algorithm_parameters", "act_limit", "type"};
constexpr std::string_view secondHandled[] = {"algorithm", "algorithm_parameters", "network_architecture", "training",
                                              "communication"};

constexpr Rename firstTop[] = {{"train_server_address", "server.address"}};
constexpr Rename commonParameters[] = {{"seed", "seed"},
                                       {"input_size", "observation"},
                                       {"gamma", "algorithm.gamma"},
                                       {"lr", "algorithm.lr"},
                                       {"learning_rate", "algorithm.lr"}};
constexpr Rename ppoParameters[] = {{"batch_size", "algorithm.minibatch_size"},
                                    {"lam", "algorithm.gae_lambda"},
                                    {"pi_lr", "algorithm.lr"},
                                    {"vf_lr", "algorithm.critic_lr"}};
constexpr Rename dqnParameters[] = {{"q_lr", "algorithm.lr"},
                                    {"train_q_iters", "algorithm.gradient_steps"},
                                    {"train_update_freq", "algorithm.train_frequency"},
                                    {"target_update_freq", "algorithm.target_update_interval"},
                                    {"epsilon", "algorithm.exploration.start"},
                                    {"epsilon_start", "algorithm.exploration.start"},
                                    {"epsilon_min", "algorithm.exploration.end"},
                                    {"epsilon_end", "algorithm.exploration.end"},
                                    {"epsilon_fraction", "algorithm.exploration.fraction"},
                                    {"buffer_size", "buffer.size"},
                                    {"buf_size", "buffer.size"}};
constexpr Rename networkNames[] = {{"hidden_sizes", "network.all.hidden_dims"},
                                   {"activation", "network.all.activation"}};
constexpr Rename ppoTraining[] = {{"batch_size", "algorithm.minibatch_size"}, {"epochs", "algorithm.epochs"}};
constexpr Rename dqnTraining[] = {{"batch_size", "algorithm.batch_size"}, {"epochs", "algorithm.gradient_steps"}};
constexpr Rename communicationNames[] = {{"server_address", "server.address"}, {"timeout", "server.timeout_seconds"}};

std::string textOf(const Json& value) { return value.is_string() ? toText(value) : value.dump(); }

/// What an old form calls things for one algorithm. What is in none of these keeps its name, and the server says if it
/// knows nothing by it.
struct Dialect {
    std::string algorithm;
    std::string_view kind;
    Names parameters;
    Names training;
};

Dialect dialectOf(const Json& algorithm) {
    const std::string name = lowered(textOf(algorithm));
    if (name == "ppo") return {name, "onpolicy", ppoParameters, ppoTraining};
    if (name == "dqn") return {name, "offpolicy", dqnParameters, dqnTraining};
    return {name, "", {}, {}};
}

/// What null, false, 0 and everything empty have in common.
bool saysNothing(const Json& value) {
    return value.empty() || value == false || (value.is_number() && value == 0) || value == "";
}

std::optional<Json> taken(Json& block, const std::string& name) {
    const auto found = block.find(name);
    if (found == block.end()) return std::nullopt;
    Json value = *found;
    block.erase(name);
    return value;
}

void refuseUnknown(const Json& settings, std::set<std::string> known, Words handled) {
    known.insert(handled.begin(), handled.end());
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [name, value] : settings.items()) {
        if (!known.contains(name)) throw ConfigError(name + " is not a setting of a client" + didYouMean(name, names));
    }
}

Json blockOf(const Json& settings, const std::string& name) {
    const auto found = settings.find(name);
    if (found == settings.end() || saysNothing(*found)) return Json::object();
    if (!found->is_object()) refuse(name, *found, "it should be a block of settings");
    return *found;
}

void put(Json& settings, const std::string& dotted, const Json& value) {
    const std::size_t dot = dotted.find('.');
    Json& inner = settings[dotted.substr(0, dot)];
    if (dot == dotted.npos) {
        inner = value;
        return;
    }
    if (inner.is_null()) inner = Json::object();
    if (!inner.is_object()) refuse(dotted.substr(0, dot), inner, "it should be a block of settings");
    put(inner, dotted.substr(dot + 1), value);
}

std::string newName(const std::string& oldName, Names names, const std::string& place) {
    const auto found = std::ranges::find(names, oldName, &Rename::oldName);
    return found == names.end() ? place + oldName : std::string(found->newName);
}

/// What `names` does not know goes to `place` under its own name.
void putAll(Json& settings, const Json& old, Names names, const std::string& place) {
    for (const auto& [name, value] : old.items()) put(settings, newName(name, names, place), value);
}

/// A config that holds what needs no translation.
Json begun(const Json& old, const Dialect& dialect, Words handled, Names names) {
    Json settings = {{"version", configVersion}, {"algorithm", {{"name", dialect.algorithm}}}};
    Json kept = old;
    for (const std::string_view name : handled) kept.erase(std::string(name));
    putAll(settings, kept, names, "");
    return settings;
}

void checkKind(const Json& kind, const Dialect& dialect) {
    if (kind.is_null() || dialect.kind.empty()) return;
    std::string plain = lowered(textOf(kind));
    std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
    if (plain == dialect.kind) return;
    throw ConfigError("type is " + shown(kind) + ", but algorithm_name " + dialect.algorithm + " is " +
                      std::string(dialect.kind) + "; remove type, or choose another algorithm");
}

/// `act_dim` counts choices; with `discrete: false`, numbers between -act_limit and act_limit.
void migrateAction(Json& settings, Json& parameters, const Json& limit) {
    const std::optional<Json> size = taken(parameters, "act_dim");
    const std::optional<Json> discrete = taken(parameters, "discrete");
    if (!size || size->is_null()) return;
    if (!discrete || !saysNothing(*discrete)) {
        settings["action"] = *size;
        return;
    }
    Json action = {{"size", *size}};
    if (limit.is_number()) {
        action["low"] = -limit.get<double>();
        action["high"] = limit.get<double>();
    }
    settings["action"] = action;
}

/// The steps of a rollout that so many episodes make; none where one of both is a mistake, which is named later.
std::optional<std::uint64_t> rolloutSize(const Json& episodes, const Json& length) {
    std::uint64_t size = 0;
    try {
        if (!__builtin_mul_overflow(toInteger(episodes), toInteger(length), &size)) return size;
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
    refuse("algorithm_parameters.traj_per_epoch", episodes, "times max_traj_length it is too large a number");
}

/// Where both are given, the larger.
Json gradientSteps(const std::vector<Json>& passes) {
    if (passes.size() == 1) return passes.front();
    for (const Json& count : passes) {
        if (!count.is_number()) refuse("one of train_pi_iters and train_v_iters", count, "it should be a number");
    }
    return passes[1] > passes[0] ? passes[1] : passes[0];
}

/// How much experience makes an update, and how many gradient steps it takes.
void migrateRounds(Json& settings, Json& parameters, const Dialect& dialect) {
    const std::optional<Json> episodes = taken(parameters, "traj_per_epoch");
    // Replay learns as steps come in, whatever trajectories they came in.
    if (dialect.algorithm != "ppo") return;
    if (episodes && episodes->is_number_integer()) {
        put(settings, "buffer.episodes", *episodes);
        const auto size = rolloutSize(*episodes, settings.value("max_traj_length", Json(1000)));
        if (size) put(settings, "buffer.size", *size);
    }
    std::vector<Json> passes;
    for (const char* name : {"train_pi_iters", "train_v_iters"}) {
        if (const auto count = taken(parameters, name)) passes.push_back(*count);
    }
    if (!passes.empty()) put(settings, "algorithm.gradient_steps", gradientSteps(passes));
}

void putParameters(Json& settings, const Json& parameters, const Dialect& dialect) {
    for (const auto& [name, value] : parameters.items()) {
        const bool common = std::ranges::find(commonParameters, name, &Rename::oldName) != std::end(commonParameters);
        put(settings, newName(name, common ? commonParameters : dialect.parameters, "algorithm."), value);
    }
}

Json migrateFirst(const Json& old, std::set<std::string> native) {
    native.erase("algorithm");
    native.insert("train_server_address");
    refuseUnknown(old, std::move(native), firstHandled);
    const Dialect dialect = dialectOf(old["algorithm_name"]);
    checkKind(old.value("type", Json()), dialect);
    Json parameters = blockOf(old, "algorithm_parameters");
    Json settings = begun(old, dialect, firstHandled, firstTop);
    migrateAction(settings, parameters, old.value("act_limit", Json()));
    migrateRounds(settings, parameters, dialect);
    putParameters(settings, parameters, dialect);
    return settings;
}

Json migrateSecond(const Json& old, std::set<std::string> native) {
    native.erase("network");
    refuseUnknown(old, std::move(native), secondHandled);
    const Dialect dialect = dialectOf(old["algorithm"]);
    Json settings = begun(old, dialect, secondHandled, {});
    putParameters(settings, blockOf(old, "algorithm_parameters"), dialect);
    putAll(settings, blockOf(old, "network_architecture"), networkNames, "network.all.");
    putAll(settings, blockOf(old, "training"), dialect.training, "training.");
    putAll(settings, blockOf(old, "communication"), communicationNames, "server.");
    return settings;
}

}  // namespace

Json migrate(const Json& settings, std::span<const std::string> native) {
    const std::set<std::string> names(native.begin(), native.end());
    if (settings.contains("algorithm_name")) return migrateFirst(settings, names);
    if (settings.contains("algorithm") && settings["algorithm"].is_string()) return migrateSecond(settings, names);
    return settings;
}

}  // namespace rl4sys::client
