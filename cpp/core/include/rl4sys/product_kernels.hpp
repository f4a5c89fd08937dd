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

/// `Rows` rows by `Width` vectors of columns, those of a panel or the first ones of it.
template <typename Number, std::size_t Rows, std::size_t Width>
RL4SYS_INLINE void productBlock(const Product& product, std::size_t row, std::size_t first) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    const std::size_t left = std::min(panelWidth, product.columns - first);
    Number sum[Rows][Width] = {};
    if (product.bias != nullptr) {
        float bias[panelWidth] = {};
        std::copy_n(product.bias + first, left, bias);
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            RL4SYS_UNROLL
            for (std::size_t w = 0; w < Width; ++w) load(sum[r][w], bias + w * lanes);
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
        for (std::size_t w = 0; w < Width; ++w) {
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
        using Number = typename Lanes::Number;
        constexpr std::size_t vectors = panelWidth * sizeof(float) / sizeof(Number);
        for (std::size_t first = 0; first < product->columns; first += panelWidth) {
            if (product->columns - first > panelWidth / 2) {
                runPanel<Number, vectors>(*product, first);
            } else {
                runPanel<Number, vectors / 2>(*product, first);
            }
        }
    }

private:
    template <typename Number, std::size_t Width>
    static RL4SYS_INLINE void runPanel(const Product& product, std::size_t first) {
        std::size_t row = 0;
        for (std::size_t blocks = (product.rows + mostRows - 1) / mostRows; blocks > 0; --blocks) {
            const std::size_t height = (product.rows - row) / blocks;
            switch (height) {
                case 1: productBlock<Number, 1, Width>(product, row, first); break;
                case 2: productBlock<Number, 2, Width>(product, row, first); break;
                case 3: productBlock<Number, 3, Width>(product, row, first); break;
                case 4: productBlock<Number, 4, Width>(product, row, first); break;
                case 5: productBlock<Number, 5, Width>(product, row, first); break;
                default: productBlock<Number, 6, Width>(product, row, first); break;
            }
            row += height;
        }
    }
};

}  // namespace rl4sys::kernels
