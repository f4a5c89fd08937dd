#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace rl4sys {

/// An array of float32 in C order.
struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

/// One step of a policy program, as sent by the learner; the closed set of them is described in
/// `rl4sys/policy/program.py`.
struct Operation {
    std::string name;
    std::vector<Tensor> weights;
    std::map<std::string, double> options;
    std::vector<std::int64_t> inputs;  ///< Numbers of the values it takes; empty for the one just before.
};

/// Operations of a program, its head included.
inline constexpr std::size_t mostOperations = 4096;

/// Numbers in all values of a program together; and in its memory.
inline constexpr std::size_t mostNumbers = std::size_t{1} << 24;

/// The number by which operations take the mask.
inline constexpr std::int64_t maskInput = -1;

/// Where an operation may stand.
enum class Role { body, discreteHead, boxHead };

/// What an operation of the closed set takes.
struct Kind {
    Role role = Role::body;
    std::size_t weights = 0;
    std::vector<std::string> options = {};   ///< In the order of their names.
    std::vector<std::string> optional = {};  ///< What may be left out.
    std::size_t fewestInputs = 1;
    std::size_t mostInputs = 1;
};

inline const std::map<std::string, Kind, std::less<>>& kinds() {
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    static const std::map<std::string, Kind, std::less<>> all{
        {"normalize", {.weights = 2, .options = {"limit"}}},
        {"linear", {.weights = 2, .optional = {"rows"}}},
        {"noisy_linear", {.weights = 4, .optional = {"rows"}}},
        {"tanh", {}},
        {"relu", {}},
        {"elu", {}},
        {"gelu", {}},
        {"silu", {}},
        {"layer_norm", {.weights = 2, .options = {"epsilon"}, .optional = {"rows"}}},
        {"scale", {.options = {"factor"}}},
        {"bias", {.weights = 1}},
        {"slice", {.options = {"length", "start"}}},
        {"concat", {.mostInputs = any}},
        {"add", {.fewestInputs = 2, .mostInputs = 2}},
        {"multiply", {.fewestInputs = 2, .mostInputs = 2}},
        {"transpose", {.options = {"rows"}}},
        {"conv2d", {.weights = 2, .options = {"height", "padding", "stride", "width"}}},
        {"max_pool", {.options = {"height", "padding", "size", "stride", "width"}}},
        {"join_rows", {.options = {"rows"}, .fewestInputs = 2, .mostInputs = 2}},
        {"attention", {.options = {"heads", "keys", "rows"}, .fewestInputs = 3, .mostInputs = 4}},
        {"mean_rows", {.options = {"rows"}, .mostInputs = 2}},
        {"gru", {.weights = 4, .options = {"memory"}}},
        {"lstm", {.weights = 4, .options = {"memory"}}},
        {"noise", {.options = {"scale", "size"}, .fewestInputs = 0, .mostInputs = 0}},
        {"expectation", {.weights = 1, .options = {"rows"}}},
        {"categorical", {Role::discreteHead}},
        {"argmax", {Role::discreteHead}},
        {"epsilon_greedy", {Role::discreteHead, 0, {"epsilon"}}},
        {"multi_categorical", {Role::discreteHead, 1}},
        {"multi_argmax", {Role::discreteHead, 1}},
        {"gaussian", {Role::boxHead, 1}},
        {"mode", {Role::boxHead}},
        {"squashed_gaussian", {Role::boxHead, 2, {"log_std_max", "log_std_min"}}},
        {"squashed_mode", {Role::boxHead, 2}},
        {"noisy_squash", {Role::boxHead, 2, {"sigma"}}},
        {"squash", {Role::boxHead, 2}},
        {"uniform", {Role::boxHead, 2, {"parameters"}}},
    };
    return all;
}

namespace detail {

using Shapes = std::vector<std::vector<std::size_t>>;

[[noreturn]] inline void refuse(const Operation& operation, const std::string& problem) {
    throw std::invalid_argument(operation.name + " " + problem);
}

inline std::string describe(const Shapes& shapes) {
    std::string text;
    for (const auto& shape : shapes) {
        text += text.empty() ? "(" : ", (";
        for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
        text += ")";
    }
    return "[" + text + "]";
}

inline void expectShapes(const Operation& operation, std::size_t size, const Shapes& expected) {
    Shapes given;
    for (const Tensor& tensor : operation.weights) given.push_back(tensor.shape);
    if (given == expected) return;
    refuse(operation, "got weights of shapes " + describe(given) + " for " + std::to_string(size) +
                          " numbers; expected " + describe(expected));
}

inline double option(const Operation& operation, const std::string& name) {
    const auto found = operation.options.find(name);
    if (found == operation.options.end()) refuse(operation, "needs the option " + name);
    return found->second;
}

/// An option that is a whole number of at least `least`.
inline std::size_t whole(const Operation& operation, const std::string& name, std::size_t least = 1) {
    const double value = option(operation, name);
    const bool inRange = value >= static_cast<double>(least) && value <= static_cast<double>(mostNumbers);
    if (inRange && value == std::floor(value)) return static_cast<std::size_t>(value);
    refuse(operation, "takes a whole number from " + std::to_string(least) + " to " + std::to_string(mostNumbers) +
                          " as " + name + ", got " + std::to_string(value));
}

/// In how many equal parts an operation takes its input: the option `rows`, 1 where it is left out.
inline std::size_t rowsOf(const Operation& operation, std::size_t size) {
    const std::size_t rows = operation.options.contains("rows") ? whole(operation, "rows") : 1;
    if (size % rows == 0) return rows;
    refuse(operation, "got " + std::to_string(size) + " numbers, which are not " + std::to_string(rows) +
                          " equal parts");
}

/// The product of sizes, or more than `mostNumbers` if it is more than that.
inline std::size_t product(std::initializer_list<std::size_t> factors) noexcept {
    std::size_t result = 1;
    for (const std::size_t factor : factors) {
        if (factor != 0 && result > mostNumbers / factor) return mostNumbers + 1;
        result *= factor;
    }
    return result;
}

inline void expectSize(const Operation& operation, const char* what, std::size_t given, std::size_t expected) {
    if (given == expected) return;
    refuse(operation, "got " + std::to_string(given) + " numbers as " + what + "; expected " +
                          std::to_string(expected));
}

inline bool hasKnownOptions(const Operation& operation, const Kind& kind) {
    const auto isGiven = [&](const std::string& name) { return operation.options.contains(name); };
    const auto isKnown = [&](const auto& option) {
        return std::isfinite(option.second) && (std::ranges::count(kind.options, option.first) > 0 ||
                                                std::ranges::count(kind.optional, option.first) > 0);
    };
    return std::ranges::all_of(kind.options, isGiven) && std::ranges::all_of(operation.options, isKnown);
}

/// What can be said of an operation without the values it takes.
inline const Kind& checkedKind(const Operation& operation) {
    const auto found = kinds().find(operation.name);
    if (found == kinds().end()) {
        throw std::invalid_argument("the policy needs the operation '" + operation.name +
                                    "', which this version of rl4sys does not know: upgrade it");
    }
    const Kind& kind = found->second;
    if (operation.weights.size() != kind.weights) {
        refuse(operation, "takes " + std::to_string(kind.weights) + " weights, got " +
                              std::to_string(operation.weights.size()));
    }
    if (!hasKnownOptions(operation, kind)) refuse(operation, "has options that are unknown, missing or not finite");
    return kind;
}

}  // namespace detail

}  // namespace rl4sys
