#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rl4sys/core/lanes.hpp"
#include "rl4sys/core/linear_kernels.hpp"
#include "rl4sys/core/transpose.hpp"

/// Matrix products for training. Each factor can be transposed.
namespace rl4sys::kernels {

/// Number of columns of a panel. The right factor is packed into panels of this width, each stored row by row.
inline constexpr std::size_t panelWidth = 16;

constexpr std::size_t panelsSize(std::size_t depth, std::size_t columns) noexcept {
    return (columns + panelWidth - 1) / panelWidth * panelWidth * depth;
}

/// Row-major matrix.
struct Matrix {
    const float* start;
    std::size_t rows;
    std::size_t columns;
};

/// Pack a matrix into panels. The last panel is padded with zeros.
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

/// Pack the transpose of a matrix into panels.
struct PackColumns {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Matrix* matrix, float* panels) {
        const std::size_t depth = matrix->columns;
        for (std::size_t first = 0; first < matrix->rows; first += panelWidth, panels += panelWidth * depth) {
            const std::size_t width = std::min(panelWidth, matrix->rows - first);
            if (width < panelWidth) std::fill_n(panels, panelWidth * depth, 0.0f);
            transpose(matrix->start + first * depth, width, depth, panels, panelWidth);
        }
    }
};

/// Product left @ right. Element (row, k) of the left factor is `left[row * rowStride + k * depthStride]`.
struct Product {
    const float* left;
    std::size_t rowStride;
    std::size_t depthStride;
    const float* panels;  ///< Packed right factor.
    const float* bias;    ///< Added to every row; null if there is no bias.
    float* result;
    std::size_t rows;
    std::size_t columns;
    std::size_t depth;
};

/// Compute `Rows` rows by `Panels` panels with all sums in registers. Uses the first `Width` vectors of each panel.
template <typename Number, std::size_t Rows, std::size_t Panels, std::size_t Width>
RL4SYS_INLINE void productBlock(const Product& product, std::size_t row, std::size_t first) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    const std::size_t left = std::min(Panels * panelWidth, product.columns - first);
    Number sum[Rows][Panels][Width] = {};
    if (product.bias != nullptr) {
        float bias[Panels * panelWidth] = {};
        std::copy_n(product.bias + first, left, bias);
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            RL4SYS_UNROLL
            for (std::size_t v = 0; v < Panels * Width; ++v) load(sum[r][v / Width][v % Width], bias + v * lanes);
        }
    }
    const float* panel = product.panels + first * product.depth;
    const float* input = product.left + row * product.rowStride;
    for (std::size_t k = 0; k < product.depth; ++k, panel += panelWidth, input += product.depthStride) {
        RL4SYS_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            RL4SYS_UNROLL
            for (std::size_t p = 0; p < Panels; ++p) {
                accumulate(sum[r][p], panel + p * panelWidth * product.depth, input[r * product.rowStride]);
            }
        }
    }
    RL4SYS_UNROLL
    for (std::size_t r = 0; r < Rows; ++r) {
        float* output = product.result + (row + r) * product.columns + first;
        RL4SYS_UNROLL
        for (std::size_t v = 0; v < Panels * Width; ++v) {
            const Number& value = sum[r][v / Width][v % Width];
            if (left >= (v + 1) * lanes) {
                store(output + v * lanes, value);
            } else if (left > v * lanes) {
                storePart(output + v * lanes, value, left - v * lanes);
            }
        }
    }
}

struct Multiply {
    /// Multiply panel by panel, so that a panel stays in the L1 cache for all rows.
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Product* product) {
        using Number = typename Lanes::Number;
        constexpr std::size_t vectors = panelWidth * sizeof(float) / sizeof(Number);
        std::size_t first = 0;
        if constexpr (vectors == 1) {
            // AVX-512 also has twice as many registers, so that two panels fit into them.
            for (; product->columns > first + panelWidth; first += 2 * panelWidth) {
                runPanels<Number, 2, 1>(*product, first, std::make_index_sequence<14>{});
            }
            if (first < product->columns) runPanels<Number, 1, 1>(*product, first, std::make_index_sequence<14>{});
        } else {
            for (; first < product->columns; first += panelWidth) {
                if (product->columns - first > panelWidth / 2) {
                    runPanels<Number, 1, vectors>(*product, first, std::make_index_sequence<6>{});
                } else {
                    runPanels<Number, 1, vectors / 2>(*product, first, std::make_index_sequence<6>{});
                }
            }
        }
    }

private:
    /// Process the rows in blocks of nearly equal height, at most the length of the index sequence.
    template <typename Number, std::size_t Panels, std::size_t Width, std::size_t... Rows>
    static RL4SYS_INLINE void runPanels(const Product& product, std::size_t first, std::index_sequence<Rows...>) {
        constexpr std::size_t maxRows = sizeof...(Rows);
        std::size_t row = 0;
        for (std::size_t blocks = (product.rows + maxRows - 1) / maxRows; blocks > 0; --blocks) {
            const std::size_t height = (product.rows - row) / blocks;
            ((height == Rows + 1 ? productBlock<Number, Rows + 1, Panels, Width>(product, row, first) : void()), ...);
            row += height;
        }
    }
};

}  // namespace rl4sys::kernels
