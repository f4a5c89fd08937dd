#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "rl4sys/core/draws.hpp"
#include "rl4sys/core/trainable_network.hpp"

namespace rl4sys {

/// Owner of random network weights and optimizer state. Their addresses do not change when more are added.
class NetworkWeights {
public:
    std::vector<float> numbers(std::size_t count) {
        std::vector<float> result(count);
        for (float& number : result) number = static_cast<float>(draws_.uniform() - 0.5);
        return result;
    }

    /// Store a parameter and return it with the initial state of Adam.
    ParameterState parameter(std::vector<float> values) {
        const std::size_t count = values.size();
        float* const stored = store(std::move(values));
        float* const means = store(std::vector<float>(count, 0.0f));
        float* const squares = store(std::vector<float>(count, 0.0f));
        return {stored, means, squares, store({0.0f})};
    }

    std::unique_ptr<TrainableNetwork> trainable(const Layers& layers) {
        std::vector<ParameterState> parameters;
        for (const std::size_t size : sizes(layers)) parameters.push_back(parameter(numbers(size)));
        return std::make_unique<TrainableNetwork>(layers, parameters, AdamOptions{1e-3f, 0.9f, 0.999f, 1e-8f});
    }

    std::unique_ptr<FrozenNetwork> frozen(const Layers& layers) {
        std::vector<const float*> values;
        for (const std::size_t size : sizes(layers)) values.push_back(store(numbers(size)));
        return std::make_unique<FrozenNetwork>(layers, values);
    }

    /// Return a copy of all weights and optimizer state.
    std::vector<std::vector<float>> all() const { return {arrays_.begin(), arrays_.end()}; }

private:
    static std::vector<std::size_t> sizes(const Layers& layers) {
        std::vector<std::size_t> result;
        for (std::size_t n = 0; n < layers.count(); ++n) {
            result.push_back(layers.inputs(n) * layers.outputs(n));
            result.push_back(layers.outputs(n));
            if (layers.normalized(n)) result.insert(result.end(), 2, layers.outputs(n));
        }
        return result;
    }

    float* store(std::vector<float> values) { return arrays_.emplace_back(std::move(values)).data(); }

    Draws draws_{7};
    std::deque<std::vector<float>> arrays_;
};

}  // namespace rl4sys
