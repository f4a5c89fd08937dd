#pragma once

#include <algorithm>
#include <cstddef>

#include "rl4sys/lanes.hpp"
#include "rl4sys/linear_kernels.hpp"

/// Products of two matrices, as the training of networks needs them: by either factor transposed.
namespace rl4sys::kernels {

/// The right factor is read from panels of so many columns, one after the other, each row by row.
inline constexpr std::size_t panelWidth = 16;

constexpr std::size_t panelsSize(std::size_t depth, std::size_t columns) noexcept {
    return (columns + panelWidth - 1) / panelWidth * panelWidth * depth;
}

/// A matrix as it lies in memory: elements of a row are next to one another.
struct Matrix {
    const float* start;
    std::size_t rows;
    std::size_t columns;
};

/// A matrix into panels; what the last panel has too many is 0.
struct PackRows {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Matrix* matrix, float* panels) {
        for (std::size_t first = 0; first < matrix->columns; first += panelWidth) {
            const std::size_t width = std::min(panelWidth, matrix->columns - first);
            const float* row = matrix->start + first;
            for (std::size_t r = 0; r < matrix->rows; ++r, row += matrix->columns, panels += panelWidth) {
                for (std::size_t c = 0; c < width; ++c) panels[c] = row[c];
                for (std::size_t c = width; c < panelWidth; ++c) panels[c] = 0.0f;
            }
        }
    }
};

/// The transpose of a matrix into panels.
struct PackColumns {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Matrix* matrix, float* panels) {
        for (std::size_t first = 0; first < matrix->rows; first += panelWidth) {
            const std::size_t width = std::min(panelWidth, matrix->rows - first);
            if (width < panelWidth) std::fill_n(panels, panelWidth * matrix->columns, 0.0f);
            for (std::size_t c = 0; c < width; ++c) {
                const float* row = matrix->start + (first + c) * matrix->columns;
                for (std::size_t k = 0; k < matrix->columns; ++k) panels[k * panelWidth + c] = row[k];
            }
            panels += panelWidth * matrix->columns;
        }
    }
};

/// left @ right: element (row, k) of the left factor is `left[row * rowStride + k * depthStride]`.
struct Product {
    const float* left;
    std::size_t rowStride;
    std::size_t depthStride;
    const float* panels;  ///< Of the right factor.
    const float* bias;    ///< Added to every row; null for none.
    float* result;
    std::size_t rows;
    std::size_t columns;
    std::size_t depth;
};

template <typename Number, std::size_t Rows>
RL4SYS_INLINE void productBlock(const Product& product, std::size_t row, std::size_t first) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    constexpr std::size_t width = panelWidth / lanes;
    const std::size_t left = std::min(panelWidth, product.columns - first);
    Number sum[Rows][width] = {};
    if (product.bias != nullptr) {
        float bias[panelWidth] = {};
        std::copy_n(product.bias + first, left, bias);
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            RL4SYS_UNROLL
            for (std::size_t w = 0; w < width; ++w) load(sum[r][w], bias + w * lanes);
        }
    }
    const float* panel = product.panels + first * product.depth;
    const float* input = product.left + row * product.rowStride;
    for (std::size_t k = 0; k < product.depth; ++k, panel += panelWidth, input += product.depthStride) {
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) accumulate(sum[r], panel, input[r * product.rowStride]);
    }
    RL4SYS_UNROLL
    for (std::size_t r = 0; r < Rows; ++r) {
        float* output = product.result + (row + r) * product.columns + first;
        RL4SYS_UNROLL
        for (std::size_t w = 0; w < width; ++w) {
            if (left >= (w + 1) * lanes) {
                store(output + w * lanes, sum[r][w]);
            } else if (left > w * lanes) {
                storePart(output + w * lanes, sum[r][w], left - w * lanes);
            }
        }
    }
}

struct Multiply {
    static constexpr std::size_t mostRows = 6;

    /// A panel stays in the nearest cache while all rows pass over it.
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Product* product) {
        for (std::size_t first = 0; first < product->columns; first += panelWidth) {
            std::size_t row = 0;
            for (std::size_t blocks = (product->rows + mostRows - 1) / mostRows; blocks > 0; --blocks) {
                const std::size_t height = (product->rows - row) / blocks;
                runBlock<typename Lanes::Number>(*product, height, row, first);
                row += height;
            }
        }
    }

private:
    template <typename Number>
    static RL4SYS_INLINE void runBlock(const Product& product, std::size_t height, std::size_t row,
                                       std::size_t first) {
        switch (height) {
            case 1: return productBlock<Number, 1>(product, row, first);
            case 2: return productBlock<Number, 2>(product, row, first);
            case 3: return productBlock<Number, 3>(product, row, first);
            case 4: return productBlock<Number, 4>(product, row, first);
            case 5: return productBlock<Number, 5>(product, row, first);
            default: return productBlock<Number, 6>(product, row, first);
        }
    }
};

}  // namespace rl4sys::kernels
