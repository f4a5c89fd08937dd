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

/// Array of float32 values in C order.
struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

/// One operation of a policy program, as sent by the learner. `rl4sys/policy/program.py` documents all operations.
struct Operation {
    std::string name;
    std::vector<Tensor> weights;
    std::map<std::string, double> options;
    std::vector<std::int64_t> inputs;  ///< Value numbers of the inputs; if empty, the previous value is the input.
};

/// Maximum number of operations of a program, including the head.
inline constexpr std::size_t maxOperations = 4096;

/// Maximum total length of all values of a program. Also the maximum length of its memory.
inline constexpr std::size_t maxValues = std::size_t{1} << 24;

/// Value number of the action mask.
inline constexpr std::int64_t maskInput = -1;

/// Role of an operation in a program: part of the body, or head for discrete or Box actions.
enum class Role { body, discreteHead, boxHead };

/// Role of an operation, and the weights, options and inputs that it takes.
struct OperationKind {
    Role role = Role::body;
    std::size_t weights = 0;
    std::vector<std::string> options = {};   ///< Required options, sorted by name.
    std::vector<std::string> optional = {};  ///< Options that may be omitted.
    std::size_t minInputs = 1;
    std::size_t maxInputs = 1;
};

inline const std::map<std::string, OperationKind, std::less<>>& operationKinds() {
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    static const std::map<std::string, OperationKind, std::less<>> all{
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
        {"concat", {.maxInputs = any}},
        {"add", {.minInputs = 2, .maxInputs = 2}},
        {"multiply", {.minInputs = 2, .maxInputs = 2}},
        {"transpose", {.options = {"rows"}}},
        {"conv2d", {.weights = 2, .options = {"height", "padding", "stride", "width"}}},
        {"max_pool", {.options = {"height", "padding", "size", "stride", "width"}}},
        {"join_rows", {.options = {"rows"}, .minInputs = 2, .maxInputs = 2}},
        {"attention", {.options = {"heads", "keys", "rows"}, .minInputs = 3, .maxInputs = 4}},
        {"mean_rows", {.options = {"rows"}, .maxInputs = 2}},
        {"gru", {.weights = 4, .options = {"memory"}}},
        {"lstm", {.weights = 4, .options = {"memory"}}},
        {"noise", {.options = {"scale", "size"}, .minInputs = 0, .maxInputs = 0}},
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

[[noreturn]] inline void reject(const Operation& operation, const std::string& problem) {
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

inline void checkShapes(const Operation& operation, std::size_t size, const Shapes& expected) {
    Shapes given;
    for (const Tensor& tensor : operation.weights) given.push_back(tensor.shape);
    if (given == expected) return;
    reject(operation, "got weights of shapes " + describe(given) + " for " + std::to_string(size) +
                          " numbers; expected " + describe(expected));
}

inline double option(const Operation& operation, const std::string& name) {
    const auto found = operation.options.find(name);
    if (found == operation.options.end()) reject(operation, "needs the option " + name);
    return found->second;
}

/// Return an option as an integer of at least `least`.
inline std::size_t integerOption(const Operation& operation, const std::string& name, std::size_t least = 1) {
    const double value = option(operation, name);
    const bool inRange = value >= static_cast<double>(least) && value <= static_cast<double>(maxValues);
    if (inRange && value == std::floor(value)) return static_cast<std::size_t>(value);
    reject(operation, "takes a whole number from " + std::to_string(least) + " to " + std::to_string(maxValues) +
                          " as " + name + ", got " + std::to_string(value));
}

/// Return the number of equal rows in an input of `size` numbers: the option `rows`, by default 1.
inline std::size_t rowsOf(const Operation& operation, std::size_t size) {
    const std::size_t rows = operation.options.contains("rows") ? integerOption(operation, "rows") : 1;
    if (size % rows == 0) return rows;
    reject(operation, "got " + std::to_string(size) + " numbers, which cannot be split into " + std::to_string(rows) +
                          " equal rows");
}

/// Return the product of sizes, saturated at `maxValues + 1`.
inline std::size_t product(std::initializer_list<std::size_t> factors) noexcept {
    std::size_t result = 1;
    for (const std::size_t factor : factors) {
        if (factor != 0 && result > maxValues / factor) return maxValues + 1;
        result *= factor;
    }
    return result;
}

inline void checkSize(const Operation& operation, const char* name, std::size_t given, std::size_t expected) {
    if (given == expected) return;
    reject(operation, "got " + std::to_string(given) + " numbers as " + name + "; expected " +
                          std::to_string(expected));
}

inline bool hasKnownOptions(const Operation& operation, const OperationKind& kind) {
    const auto isGiven = [&](const std::string& name) { return operation.options.contains(name); };
    const auto isKnown = [&](const auto& option) {
        return std::isfinite(option.second) && (std::ranges::count(kind.options, option.first) > 0 ||
                                                std::ranges::count(kind.optional, option.first) > 0);
    };
    return std::ranges::all_of(kind.options, isGiven) && std::ranges::all_of(operation.options, isKnown);
}

/// Return the kind of an operation.
/// \throws std::invalid_argument if the operation is unknown or has the wrong weights or options.
inline const OperationKind& findKind(const Operation& operation) {
    const auto found = operationKinds().find(operation.name);
    if (found == operationKinds().end()) {
        throw std::invalid_argument("the policy needs the operation '" + operation.name +
                                    "', which this version of rl4sys does not support; upgrade rl4sys");
    }
    const OperationKind& kind = found->second;
    if (operation.weights.size() != kind.weights) {
        reject(operation, "takes " + std::to_string(kind.weights) + " weights, got " +
                              std::to_string(operation.weights.size()));
    }
    if (!hasKnownOptions(operation, kind)) reject(operation, "has options that are unknown, missing or not finite");
    return kind;
}

}  // namespace detail

}  // namespace rl4sys
