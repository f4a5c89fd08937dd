#include "rl4sys/core/layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "rl4sys/core/adam.hpp"
#include "rl4sys/core/draws.hpp"

namespace rl4sys {
namespace {

/// Network with random weights.
class Network {
public:
    Network(std::vector<std::size_t> widths, const char* activation, bool normalized)
        : layers_(widths, activation, normalized, 1e-5f) {
        for (std::size_t n = 0; n < layers_.count(); ++n) {
            add(layers_.outputs(n) * layers_.inputs(n));
            add(layers_.outputs(n));
            if (!layers_.normalized(n)) continue;
            add(layers_.outputs(n));
            add(layers_.outputs(n));
        }
    }

    std::vector<float> numbers(std::size_t count) {
        std::vector<float> result(count);
        for (float& number : result) number = static_cast<float>(draws_.uniform() - 0.5);
        return result;
    }

    /// Return the sum of all outputs for a batch of inputs.
    double total(const std::vector<float>& input) {
        const std::size_t rows = input.size() / layers_.inputs(0);
        std::vector<float> output(rows * layers_.outputs(layers_.count() - 1));
        layers_.forward(rows, input.data(), weights(), tape_, output.data());
        double sum = 0.0;
        for (const float value : output) sum += static_cast<double>(value);
        return sum;
    }

    /// Return the gradients of `total` with respect to each weight array, followed by those with respect to the input.
    std::vector<std::vector<float>> gradients(const std::vector<float>& input) {
        total(input);
        std::vector<std::vector<float>> found;
        for (const auto& part : parts) found.emplace_back(part.size());
        found.emplace_back(input.size());
        std::vector<LayerGradients> byLayer;
        std::size_t next = 0;
        for (std::size_t n = 0; n < layers_.count(); ++n) {
            LayerGradients layer{found[next].data(), found[next + 1].data(), nullptr, nullptr};
            next += 2;
            if (layers_.normalized(n)) {
                layer.scale = found[next].data();
                layer.shift = found[next + 1].data();
                next += 2;
            }
            byLayer.push_back(layer);
        }
        const std::vector<float> ones(tape_.rows() * layers_.outputs(layers_.count() - 1), 1.0f);
        layers_.backward(input.data(), weights(), tape_, ones.data(), byLayer, found.back().data());
        return found;
    }

    std::vector<std::vector<float>> parts;

private:
    void add(std::size_t count) { parts.push_back(numbers(count)); }

    std::vector<LayerWeights> weights() const {
        std::vector<LayerWeights> result;
        std::size_t next = 0;
        for (std::size_t n = 0; n < layers_.count(); ++n) {
            LayerWeights layer{parts[next].data(), parts[next + 1].data(), nullptr, nullptr};
            next += 2;
            if (layers_.normalized(n)) {
                layer.scale = parts[next].data();
                layer.shift = parts[next + 1].data();
                next += 2;
            }
            result.push_back(layer);
        }
        return result;
    }

    Layers layers_;
    Tape tape_;
    Draws draws_{7, 0};
};

/// Return the central finite difference of `total` with respect to `number`.
double finiteDifference(Network& network, const std::vector<float>& input, float& number) {
    constexpr float step = 1e-2f;
    const float before = number;
    number = before + step;
    const double above = network.total(input);
    number = before - step;
    const double below = network.total(input);
    number = before;
    return (above - below) / (2.0 * static_cast<double>(step));
}

class LayersTest : public testing::TestWithParam<bool> {};

TEST_P(LayersTest, GradientsMatchFiniteDifferences) {
    // Layer widths that are not multiples of the vector width, so that accesses past the end change the result.
    Network network({3, 19, 5, 2}, "tanh", GetParam());
    std::vector<float> input = network.numbers(7 * 3);
    const auto found = network.gradients(input);
    std::size_t tried = 0;
    for (std::size_t part = 0; part < found.size(); ++part) {
        auto& numbers = part < network.parts.size() ? network.parts[part] : input;
        for (std::size_t i = 0; i < numbers.size(); i += 3, ++tried) {
            EXPECT_NEAR(found[part][i], finiteDifference(network, input, numbers[i]), 5e-3)
                << "part " << part << ", " << i;
        }
    }
    EXPECT_GT(tried, 60U);
}

INSTANTIATE_TEST_SUITE_P(PlainAndNormalized, LayersTest, testing::Bool());

TEST(LayersErrors, UnsupportedActivationOrTooFewWidthsAreRejected) {
    EXPECT_THROW(Layers({2, 3, 1}, "gelu", false, 1e-5f), std::invalid_argument);
    EXPECT_THROW(Layers({2}, "tanh", false, 1e-5f), std::invalid_argument);
}

TEST(AdamTest, FirstStepHasTheSizeOfTheLearningRate) {
    std::vector<float> values(11, 1.0f), gradients(11, -0.3f), means(11, 0.0f), squares(11, 0.0f);
    const AdamParameter parameter{values.data(), gradients.data(), means.data(), squares.data(), values.size()};
    EXPECT_NEAR(sumOfSquares({&parameter, 1}), 11 * 0.09, 1e-6);
    adamStep({&parameter, 1}, {0.01f, 0.9f, 0.999f, 1e-8f}, 1.0, 1.0);
    for (const float value : values) EXPECT_NEAR(value, 1.01f, 1e-6);
}

}  // namespace
}  // namespace rl4sys
