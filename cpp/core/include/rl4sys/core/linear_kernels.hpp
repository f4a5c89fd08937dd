#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "rl4sys/core/lanes.hpp"

/// Linear layers for one row and for several rows.
namespace rl4sys::kernels {

/// Transposed weights of a linear layer: `weight[input * outputs + output]`, with padded `outputs`.
struct LinearLayer {
    const float* weight;
    const float* bias;
    std::size_t inputs;
    std::size_t outputs;
};

template <typename Number, std::size_t Width>
RL4SYS_INLINE void accumulate(Number (&sum)[Width], const float* weight, float input) noexcept {
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) {
        Number factor;
        load(factor, weight + w * (sizeof(Number) / sizeof(float)));
        sum[w] += factor * input;
    }
}

/// Number of products in a partial sum, before it is added to the total. Limits the rounding error of long sums.
inline constexpr std::size_t maxPartialSum = 128;

/// Compute `Width` vectors of outputs. For small widths, the sum is split into `Parts` independent chains of additions,
/// to hide the latency of an addition.
template <typename Number, std::size_t Width, std::size_t Parts>
RL4SYS_INLINE void linearPanel(const LinearLayer& layer, std::size_t first, const float* input, float* output) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    const float* weight = layer.weight + first;
    Number total[Width] = {};
    Number sum[Parts][Width] = {};
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) load(sum[0][w], layer.bias + first + w * lanes);
    std::size_t i = 0;
    do {
        const std::size_t end = std::min(layer.inputs, i + maxPartialSum);
        for (; i + Parts <= end; i += Parts) {
            RL4SYS_UNROLL
            for (std::size_t p = 0; p < Parts; ++p) accumulate(sum[p], weight + (i + p) * layer.outputs, input[i + p]);
        }
        for (; i < end; ++i) accumulate(sum[0], weight + i * layer.outputs, input[i]);
        RL4SYS_UNROLL
        for (std::size_t w = 0; w < Width; ++w) {
            RL4SYS_UNROLL
            for (std::size_t p = 1; p < Parts; ++p) sum[0][w] += sum[p][w];
            total[w] += sum[0][w];
            RL4SYS_UNROLL
            for (std::size_t p = 0; p < Parts; ++p) sum[p][w] = Number{};
        }
    } while (i < layer.inputs);
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) store(output + first + w * lanes, total[w]);
}

template <typename Number>
RL4SYS_INLINE void linearPanel(const LinearLayer& layer, std::size_t first, std::size_t width, const float* input,
                               float* output) {
    switch (width) {
        case 1: return linearPanel<Number, 1, 8>(layer, first, input, output);
        case 2: return linearPanel<Number, 2, 4>(layer, first, input, output);
        case 3: return linearPanel<Number, 3, 2>(layer, first, input, output);
        case 4: return linearPanel<Number, 4, 2>(layer, first, input, output);
        case 5: return linearPanel<Number, 5, 1>(layer, first, input, output);
        case 6: return linearPanel<Number, 6, 1>(layer, first, input, output);
        case 7: return linearPanel<Number, 7, 1>(layer, first, input, output);
        default: return linearPanel<Number, 8, 1>(layer, first, input, output);
    }
}

/// Linear layer for one row: weight @ input + bias.
struct Linear {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const LinearLayer* layer, const float* input, float* output) {
        constexpr std::size_t lanes = sizeof(typename Lanes::Number) / sizeof(float);
        const std::size_t vectors = layer->outputs / lanes;
        std::size_t panels = (vectors + 7) / 8;
        // Use panels of nearly equal width, because a last panel of one vector would be slow: it would wait for the
        // latency of each addition.
        for (std::size_t done = 0; done < vectors; --panels) {
            const std::size_t width = (vectors - done) / panels;
            linearPanel<typename Lanes::Number>(*layer, done * lanes, width, input, output);
            done += width;
        }
    }
};

/// Weights of a linear layer for several rows, and the memory layout of the inputs of one row.
///
/// The inputs of a row are `segments` pieces of `length` elements, each `segmentStride` elements after the one before,
/// such as the lines of an image patch.
struct RowsLayer {
    const float* weight;       ///< `weight[input * weightStride + output]`; read in whole vectors.
    std::size_t weightStride;
    const float* bias;         ///< Padded; null if there is no bias.
    std::size_t outputs;       ///< Not padded.
    std::size_t segments;
    std::size_t length;
    std::size_t segmentStride;
};

/// Start and row stride of the inputs and outputs of a block of rows.
struct RowBlock {
    const float* input;
    std::size_t inputStride;
    float* output;
    std::size_t outputStride;
};

/// Store the first `count` elements of a vector.
template <typename Number>
RL4SYS_INLINE void storePart(float* memory, const Number& number, std::size_t count) noexcept {
    std::memcpy(memory, &number, std::min(count * sizeof(float), sizeof(Number)));
}

/// Compute `Rows` rows by `Width` vectors of outputs with all sums in registers.
template <typename Number, std::size_t Rows, std::size_t Width>
RL4SYS_INLINE void rowsBlock(const RowsLayer& layer, std::size_t first, const RowBlock& block) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    Number sum[Rows][Width] = {};
    if (layer.bias != nullptr) {
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            RL4SYS_UNROLL
            for (std::size_t w = 0; w < Width; ++w) load(sum[r][w], layer.bias + first + w * lanes);
        }
    }
    const float* weight = layer.weight + first;
    for (std::size_t s = 0; s < layer.segments; ++s) {
        const float* input = block.input + s * layer.segmentStride;
        for (std::size_t i = 0; i < layer.length; ++i, weight += layer.weightStride) {
            RL4SYS_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) accumulate(sum[r], weight, input[r * block.inputStride + i]);
        }
    }
    const std::size_t left = layer.outputs - first;
    RL4SYS_UNROLL
    for (std::size_t r = 0; r < Rows; ++r) {
        float* output = block.output + r * block.outputStride + first;
        RL4SYS_UNROLL
        for (std::size_t w = 0; w < Width; ++w) {
            if (left >= (w + 1) * lanes) {
                store(output + w * lanes, sum[r][w]);
            } else {
                storePart(output + w * lanes, sum[r][w], left - w * lanes);
            }
        }
    }
}

template <typename Number, std::size_t Rows>
RL4SYS_INLINE void rowsBlock(const RowsLayer& layer, const RowBlock& block) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    const std::size_t vectors = (layer.outputs + lanes - 1) / lanes;
    std::size_t done = 0;
    for (; done + 2 <= vectors; done += 2) rowsBlock<Number, Rows, 2>(layer, done * lanes, block);
    if (done < vectors) rowsBlock<Number, Rows, 1>(layer, done * lanes, block);
}

/// Linear layer for several rows: weight @ input + bias for each row. The result of a row does not depend on the other
/// rows.
struct LinearRows {
    static constexpr std::size_t maxRows = 6;

    template <typename Lanes>
    static RL4SYS_INLINE void run(const RowsLayer* layer, std::size_t rows, const RowBlock* block) {
        RowBlock rest = *block;
        // Blocks of nearly equal height, for the same reason as the panels of `Linear`.
        for (std::size_t blocks = (rows + maxRows - 1) / maxRows; blocks > 0; --blocks) {
            const std::size_t height = rows / blocks;
            runBlock<typename Lanes::Number>(*layer, height, rest);
            rest.input += height * rest.inputStride;
            rest.output += height * rest.outputStride;
            rows -= height;
        }
    }

private:
    template <typename Number>
    static RL4SYS_INLINE void runBlock(const RowsLayer& layer, std::size_t height, const RowBlock& block) {
        switch (height) {
            case 1: return rowsBlock<Number, 1>(layer, block);
            case 2: return rowsBlock<Number, 2>(layer, block);
            case 3: return rowsBlock<Number, 3>(layer, block);
            case 4: return rowsBlock<Number, 4>(layer, block);
            case 5: return rowsBlock<Number, 5>(layer, block);
            default: return rowsBlock<Number, 6>(layer, block);
        }
    }
};

}  // namespace rl4sys::kernels
