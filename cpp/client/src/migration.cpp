#include "migration.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
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
    std::string_view newName;  ///< Dotted name in the current format.
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
constexpr Rename replayParameters[] = {{"q_lr", "algorithm.lr"},
                                       {"train_update_freq", "algorithm.train_frequency"},
                                       {"buffer_size", "buffer.size"},
                                       {"buf_size", "buffer.size"}};
constexpr Rename dqnParameters[] = {{"train_q_iters", "algorithm.gradient_steps"},
                                    {"target_update_freq", "algorithm.target_update_interval"},
                                    {"epsilon", "algorithm.exploration.start"},
                                    {"epsilon_start", "algorithm.exploration.start"},
                                    {"epsilon_min", "algorithm.exploration.end"},
                                    {"epsilon_end", "algorithm.exploration.end"},
                                    {"epsilon_fraction", "algorithm.exploration.fraction"}};
constexpr Rename actorCriticParameters[] = {{"pi_lr", "algorithm.actor_lr"},
                                            {"train_iters", "algorithm.gradient_steps"}};
constexpr Rename networkNames[] = {{"hidden_sizes", "network.all.hidden_dims"},
                                   {"activation", "network.all.activation"}};
constexpr Rename ppoTraining[] = {{"batch_size", "algorithm.minibatch_size"}, {"epochs", "algorithm.epochs"}};
constexpr Rename replayTraining[] = {{"batch_size", "algorithm.batch_size"}, {"epochs", "algorithm.gradient_steps"}};
constexpr Rename communicationNames[] = {{"server_address", "server.address"}, {"timeout", "server.timeout_seconds"}};

std::string textOf(const Json& value) { return value.is_string() ? toText(value) : value.dump(); }

/// Renamed settings of one algorithm in the older formats. Settings that are not listed keep their names; the server
/// validates them.
struct LegacyNames {
    std::string algorithm;
    std::string_view kind;
    Names parameters;
    Names shared;  ///< Parameters of all algorithms of this kind.
    Names training;
};

LegacyNames legacyNamesOf(const Json& algorithm) {
    const std::string name = lowered(textOf(algorithm));
    if (name == "ppo") return {name, "onpolicy", ppoParameters, {}, ppoTraining};
    if (name == "dqn") return {name, "offpolicy", dqnParameters, replayParameters, replayTraining};
    if (name == "sac" || name == "td3" || name == "ddpg") {
        return {name, "offpolicy", actorCriticParameters, replayParameters, replayTraining};
    }
    return {name, "", {}, {}, {}};
}

/// Return true for null, false, 0 and empty strings, lists and objects.
bool isEmptyValue(const Json& value) {
    return value.empty() || value == false || (value.is_number() && value == 0) || value == "";
}

/// Remove a setting and return its value, or nothing if it is not present.
std::optional<Json> extract(Json& block, const std::string& name) {
    const auto found = block.find(name);
    if (found == block.end()) return std::nullopt;
    Json value = *found;
    block.erase(name);
    return value;
}

void rejectUnknown(const Json& settings, std::set<std::string> known, Words handled) {
    known.insert(handled.begin(), handled.end());
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [name, value] : settings.items()) {
        if (!known.contains(name)) throw ConfigError(name + " is not a setting of a client" + didYouMean(name, names));
    }
}

Json blockOf(const Json& settings, const std::string& name) {
    const auto found = settings.find(name);
    if (found == settings.end() || isEmptyValue(*found)) return Json::object();
    if (!found->is_object()) refuse(name, *found, "expected a block of settings");
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
    if (!inner.is_object()) refuse(dotted.substr(0, dot), inner, "expected a block of settings");
    put(inner, dotted.substr(dot + 1), value);
}

std::string newName(const std::string& oldName, Names names, const std::string& place) {
    const auto found = std::ranges::find(names, oldName, &Rename::oldName);
    return found == names.end() ? place + oldName : std::string(found->newName);
}

/// Copy all settings under their new names. A setting that is not in `names` keeps its name, with `place` as prefix.
void putRenamed(Json& settings, const Json& old, Names names, const std::string& place) {
    for (const auto& [name, value] : old.items()) put(settings, newName(name, names, place), value);
}

/// Create a config of the current format with all old settings except those in `handled`, which need a conversion.
Json startMigrated(const Json& old, const LegacyNames& legacy, Words handled, Names names) {
    Json settings = {{"version", configVersion}, {"algorithm", {{"name", legacy.algorithm}}}};
    Json kept = old;
    for (const std::string_view name : handled) kept.erase(std::string(name));
    putRenamed(settings, kept, names, "");
    return settings;
}

void checkKind(const Json& kind, const LegacyNames& legacy) {
    if (kind.is_null() || legacy.kind.empty()) return;
    std::string plain = lowered(textOf(kind));
    std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
    if (plain == legacy.kind) return;
    throw ConfigError("type is " + shown(kind) + ", but algorithm_name " + legacy.algorithm + " is " +
                      std::string(legacy.kind) + "; remove type, or choose another algorithm");
}

/// Convert `act_dim`: the number of discrete actions, or with `discrete: false` the length of a Box action within
/// ±`act_limit`.
void migrateAction(Json& settings, Json& parameters, const Json& limit) {
    const std::optional<Json> size = extract(parameters, "act_dim");
    const std::optional<Json> discrete = extract(parameters, "discrete");
    if (!size || size->is_null()) return;
    if (!discrete || !isEmptyValue(*discrete)) {
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

/// Return the rollout size in steps, or nothing if a value is invalid; the parser of the settings reports it later.
std::optional<std::uint64_t> rolloutSize(const Json& episodes, const Json& length) {
    std::uint64_t size = 0;
    try {
        if (!__builtin_mul_overflow(toInteger(episodes), toInteger(length), &size)) return size;
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
    refuse("algorithm_parameters.traj_per_epoch", episodes, "the product with max_traj_length is too large");
}

[[noreturn]] void refuseParameter(const std::string& name, const Json& value, const std::string& expected) {
    refuse("algorithm_parameters." + name, value, "expected " + expected);
}

/// Return true for integers and for booleans, which are integers in Python.
bool isWhole(const Json& value) { return value.is_number_integer() || value.is_boolean(); }

/// Convert the gradient steps of actor and critic. By default, the critic takes as many steps as the actor.
void migrateStepCounts(Json& settings, Json& parameters) {
    const std::optional<Json> actor = extract(parameters, "train_pi_iters");
    const std::optional<Json> critic = extract(parameters, "train_v_iters");
    if (actor && critic) {
        if (!isWhole(*actor)) refuseParameter("train_pi_iters", *actor, "an integer");
        if (!isWhole(*critic)) refuseParameter("train_v_iters", *critic, "an integer");
    }
    if (actor) put(settings, "algorithm.gradient_steps", *actor);
    if (critic && critic != actor) put(settings, "algorithm.critic_gradient_steps", *critic);
}

/// Convert the rollout size and the number of gradient steps per update of PPO.
void migrateUpdateSizes(Json& settings, Json& parameters, const LegacyNames& legacy) {
    const std::optional<Json> episodes = extract(parameters, "traj_per_epoch");
    // The other algorithms use replay buffers, which have no rollout size.
    if (legacy.algorithm != "ppo") return;
    if (episodes && episodes->is_number_integer()) {
        put(settings, "buffer.episodes", *episodes);
        const auto size = rolloutSize(*episodes, settings.value("max_traj_length", Json(1000)));
        if (size) put(settings, "buffer.size", *size);
    }
    migrateStepCounts(settings, parameters);
}

/// Return the first of the named parameters that is given, or `otherwise` if none is given.
double numberOf(const Json& parameters, std::initializer_list<const char*> names, double otherwise) {
    for (const char* name : names) {
        const auto found = parameters.find(name);
        if (found == parameters.end()) continue;
        if (!found->is_number()) refuseParameter(name, *found, "a number");
        return found->get<double>();
    }
    return otherwise;
}

/// Convert the amount by which each decision lowered epsilon to the number of steps until its minimum.
void migrateEpsilonDecay(Json& settings, Json& parameters) {
    constexpr double defaultStart = 1.0;
    constexpr double defaultEnd = 0.05;
    constexpr double maxSteps = 1e15;
    const double start = numberOf(parameters, {"epsilon", "epsilon_start"}, defaultStart);
    const double end = numberOf(parameters, {"epsilon_min", "epsilon_end"}, defaultEnd);
    const double decay = numberOf(parameters, {"epsilon_decay"}, 0.0);
    if (!(decay > 0.0)) refuseParameter("epsilon_decay", parameters["epsilon_decay"], "a number above 0");
    parameters.erase("epsilon_decay");
    // Rounds half to even, as in Python.
    const double steps = std::nearbyint(std::clamp((start - end) / decay, 1.0, maxSteps));
    put(settings, "algorithm.exploration",
        {{"start", start}, {"end", end}, {"steps", static_cast<std::int64_t>(steps)}});
}

/// Convert `alpha`: the initial temperature if `adaptive_alpha` is set, otherwise a fixed temperature.
void migrateTemperature(Json& settings, Json& parameters) {
    const std::optional<Json> tuned = extract(parameters, "adaptive_alpha");
    const std::optional<Json> alpha = extract(parameters, "alpha");
    if (!alpha) return;
    const bool fixed = !tuned || isEmptyValue(*tuned);
    put(settings, fixed ? "algorithm.temperature" : "algorithm.initial_temperature", *alpha);
}

std::string parameterName(const std::string& oldName, const LegacyNames& legacy) {
    for (const Names names : {Names(commonParameters), legacy.shared, legacy.parameters}) {
        const auto found = std::ranges::find(names, oldName, &Rename::oldName);
        if (found != names.end()) return std::string(found->newName);
    }
    return "algorithm." + oldName;
}

/// Copy the parameters of the algorithm, converted to its current settings.
void putParameters(Json& settings, Json parameters, const LegacyNames& legacy) {
    const bool hasTargets = legacy.parameters.data() == std::data(actorCriticParameters);
    if (hasTargets && parameters.contains("polyak")) {
        // `polyak` is the fraction of its old weights that a target network keeps, `tau` the fraction that is replaced.
        put(settings, "algorithm.tau", 1.0 - numberOf(parameters, {"polyak"}, 0.0));
        parameters.erase("polyak");
    }
    if (legacy.algorithm == "dqn" && parameters.contains("epsilon_decay")) migrateEpsilonDecay(settings, parameters);
    if (legacy.algorithm == "sac") migrateTemperature(settings, parameters);
    for (const auto& [name, value] : parameters.items()) put(settings, parameterName(name, legacy), value);
}

Json migrateFirstForm(const Json& old, std::set<std::string> native) {
    native.erase("algorithm");
    native.insert("train_server_address");
    rejectUnknown(old, std::move(native), firstHandled);
    const LegacyNames legacy = legacyNamesOf(old["algorithm_name"]);
    checkKind(old.value("type", Json()), legacy);
    Json parameters = blockOf(old, "algorithm_parameters");
    Json settings = startMigrated(old, legacy, firstHandled, firstTop);
    migrateAction(settings, parameters, old.value("act_limit", Json()));
    migrateUpdateSizes(settings, parameters, legacy);
    putParameters(settings, parameters, legacy);
    return settings;
}

Json migrateSecondForm(const Json& old, std::set<std::string> native) {
    native.erase("network");
    rejectUnknown(old, std::move(native), secondHandled);
    const LegacyNames legacy = legacyNamesOf(old["algorithm"]);
    Json settings = startMigrated(old, legacy, secondHandled, {});
    putParameters(settings, blockOf(old, "algorithm_parameters"), legacy);
    putRenamed(settings, blockOf(old, "network_architecture"), networkNames, "network.all.");
    putRenamed(settings, blockOf(old, "training"), legacy.training, "training.");
    putRenamed(settings, blockOf(old, "communication"), communicationNames, "server.");
    return settings;
}

}  // namespace

Json migrate(const Json& settings, std::span<const std::string> native) {
    const std::set<std::string> names(native.begin(), native.end());
    if (settings.contains("algorithm_name")) return migrateFirstForm(settings, names);
    if (settings.contains("algorithm") && settings["algorithm"].is_string()) return migrateSecondForm(settings, names);
    return settings;
}

}  // namespace rl4sys::client
