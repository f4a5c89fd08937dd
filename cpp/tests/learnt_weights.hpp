#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "rl4sys/draws.hpp"
#include "rl4sys/learnt.hpp"

namespace rl4sys {

/// The memory of networks that learn, with random first weights; it stays where it is.
class LearntWeights {
public:
    std::vector<float> numbers(std::size_t count) {
        std::vector<float> result(count);
        for (float& number : result) number = static_cast<float>(draws_.uniform() - 0.5);
        return result;
    }

    /// A weight of which Adam has seen nothing yet.
    WeightPlace place(std::vector<float> values) {
        const std::size_t count = values.size();
        float* const kept = keep(std::move(values));
        float* const means = keep(std::vector<float>(count, 0.0f));
        float* const squares = keep(std::vector<float>(count, 0.0f));
        return {kept, means, squares, keep({0.0f})};
    }

    std::unique_ptr<Learnt> learnt(const Layers& layers) {
        std::vector<WeightPlace> places;
        for (const std::size_t size : sizes(layers)) places.push_back(place(numbers(size)));
        return std::make_unique<Learnt>(layers, places, AdamOptions{1e-3f, 0.9f, 0.999f, 1e-8f});
    }

    std::unique_ptr<Frozen> frozen(const Layers& layers) {
        std::vector<const float*> values;
        for (const std::size_t size : sizes(layers)) values.push_back(keep(numbers(size)));
        return std::make_unique<Frozen>(layers, values);
    }

    /// All there is.
    std::vector<std::vector<float>> all() const { return {memory_.begin(), memory_.end()}; }

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

    float* keep(std::vector<float> values) { return memory_.emplace_back(std::move(values)).data(); }

    Draws draws_{7};
    std::deque<std::vector<float>> memory_;
};

}  // namespace rl4sys
