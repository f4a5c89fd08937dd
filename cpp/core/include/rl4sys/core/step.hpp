#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "rl4sys/core/draws.hpp"
#include "rl4sys/core/kernels.hpp"
#include "rl4sys/core/operations.hpp"
#include "rl4sys/core/transpose.hpp"

/// Base class of the operations in a program body, and the buffers that they use.
namespace rl4sys::detail {

/// Position of a value in the workspace. The padding after the value, up to `slotSize(size)`, may be read and written.
struct Slot {
    std::size_t offset = 0;
    std::size_t size = 0;
};

/// Return the number of floats to allocate for a value: whole cache lines, and one vector of padding for kernels that
/// load unaligned vectors.
constexpr std::size_t slotSize(std::size_t size) noexcept {
    constexpr std::size_t line = 16;
    return (kernels::padded(size) + kernels::padding + line - 1) / line * line;
}

/// Buffer sizes and random draws that an operation needs.
struct Requirements {
    std::size_t result = 0;     ///< Length of the result.
    std::size_t temporary = 0;  ///< Length of the scratch buffer.
    std::size_t padded = 0;     ///< Length of the padded input in numpy; included in the limit `maxValues`.
    std::size_t draws = 0;      ///< Number of random draws per row.
    Slot memory = {};           ///< Part of the policy's recurrent state that the operation uses.
};

using Sizes = std::span<const std::size_t>;
using Slots = std::span<const Slot>;

/// Buffers used by one run of the program body.
struct Frame {
    float* values;
    float* temporary;
    float* memory;  ///< Recurrent state, followed by one vector of padding.
    Draws* draws;
    const kernels::Table& kernels;

    float* at(const Slot& slot) const noexcept { return values + slot.offset; }
    std::span<const float> span(const Slot& slot) const noexcept { return {at(slot), slot.size}; }
};

/// Operation of a program body, bound to the slots of its inputs and its result.
class Step {
public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    virtual ~Step() = default;

    virtual void run(const Frame& frame) const = 0;
};

inline kernels::Floats paddedCopy(const std::vector<float>& values) {
    kernels::Floats copy(kernels::padded(values.size()));
    std::copy(values.begin(), values.end(), copy.begin());
    return copy;
}

/// Transpose a weight matrix into the layout of the kernels: the weights of one input for all outputs are adjacent and
/// padded.
inline kernels::Floats transposed(const Tensor& weight) {
    const std::size_t outputs = weight.shape[0];
    const std::size_t inputs = weight.values.size() / outputs;
    const std::size_t stride = kernels::padded(outputs);
    kernels::Floats result(inputs * stride);
    kernels::transpose(weight.values.data(), outputs, inputs, result.data(), stride);
    return result;
}

/// Return the length of an axis of a weight; 0 if the axis does not exist, so that the shape check fails.
inline std::size_t axisOf(const Operation& operation, std::size_t weight, std::size_t axis) {
    const std::vector<std::size_t>& shape = operation.weights[weight].shape;
    return axis < shape.size() ? shape[axis] : 0;
}

/// Return the number of outputs of the first weight; at least 1, so that the shape check rejects an empty weight.
inline std::size_t outputsOf(const Operation& operation) { return std::max<std::size_t>(axisOf(operation, 0, 0), 1); }

/// Weight matrix and bias of a linear layer, for one or more rows.
class Dense {
public:
    Dense(const Tensor& weight, const Tensor& bias)
        : weight_(transposed(weight)), bias_(paddedCopy(bias.values)), outputs_(weight.shape[0]),
          layer_{weight_.data(), bias_.data(), weight.values.size() / outputs_, bias_.size()} {}
    Dense(const Dense&) = delete;
    Dense& operator=(const Dense&) = delete;

    std::size_t outputs() const noexcept { return outputs_; }
    std::size_t inputs() const noexcept { return layer_.inputs; }

    /// Multiply one row by the weights and add the bias. Also writes the padding after the outputs.
    void multiply(const Frame& frame, const float* input, float* output) const {
        frame.kernels.linear(&layer_, input, output);
    }

    /// Multiply several rows by the weights and add the bias. The inputs of a row are `segments` pieces, each
    /// `segmentStride` elements after the one before.
    void multiplyRows(const Frame& frame, std::size_t rows, const kernels::RowBlock& slot, std::size_t segments = 1,
                      std::size_t segmentStride = 0) const {
        const kernels::RowsLayer layer{weight_.data(), bias_.size(),          bias_.data(), outputs_,
                                       segments,       inputs() / segments, segmentStride};
        frame.kernels.linearRows(&layer, rows, &slot);
    }

private:
    kernels::Floats weight_;
    kernels::Floats bias_;
    std::size_t outputs_;
    kernels::LinearLayer layer_;
};

}  // namespace rl4sys::detail
