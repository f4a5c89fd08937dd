#pragma once

#include <algorithm>
#include <cstddef>

#include "rl4sys/core/lanes.hpp"

#if defined(__GNUC__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define RL4SYS_SHUFFLE
#endif
#endif

/// Matrix transposition.
namespace rl4sys::kernels {

/// Transpose a block of 4 x 4 numbers.
RL4SYS_INLINE void transposeFour(const float* from, std::size_t fromStride, float* to, std::size_t toStride) noexcept {
#if defined(RL4SYS_SHUFFLE)
    using Four = FourLanes::Number;
    Four a, b, c, d;
    load(a, from);
    load(b, from + fromStride);
    load(c, from + 2 * fromStride);
    load(d, from + 3 * fromStride);
    const Four abLow = __builtin_shufflevector(a, b, 0, 4, 1, 5), abHigh = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cdLow = __builtin_shufflevector(c, d, 0, 4, 1, 5), cdHigh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store<Four>(to, __builtin_shufflevector(abLow, cdLow, 0, 1, 4, 5));
    store<Four>(to + toStride, __builtin_shufflevector(abLow, cdLow, 2, 3, 6, 7));
    store<Four>(to + 2 * toStride, __builtin_shufflevector(abHigh, cdHigh, 0, 1, 4, 5));
    store<Four>(to + 3 * toStride, __builtin_shufflevector(abHigh, cdHigh, 2, 3, 6, 7));
#else
    for (std::size_t r = 0; r < 4; ++r) {
        for (std::size_t c = 0; c < 4; ++c) to[c * toStride + r] = from[r * fromStride + c];
    }
#endif
}

/// Transpose a matrix: `to[column * stride + row] = from[row * columns + column]`.
inline void transpose(const float* from, std::size_t rows, std::size_t columns, float* to,
                      std::size_t stride) noexcept {
    // Square tiles keep both reads and writes in the L1 cache.
    constexpr std::size_t side = 16;
    for (std::size_t top = 0; top < rows; top += side) {
        const std::size_t bottom = std::min(rows, top + side);
        for (std::size_t left = 0; left < columns; left += side) {
            const std::size_t right = std::min(columns, left + side);
            std::size_t r = top;
            for (; r + 4 <= bottom; r += 4) {
                std::size_t c = left;
                for (; c + 4 <= right; c += 4) {
                    transposeFour(from + r * columns + c, columns, to + c * stride + r, stride);
                }
                for (; c < right; ++c) {
                    for (std::size_t k = 0; k < 4; ++k) to[c * stride + r + k] = from[(r + k) * columns + c];
                }
            }
            for (; r < bottom; ++r) {
                for (std::size_t c = left; c < right; ++c) to[c * stride + r] = from[r * columns + c];
            }
        }
    }
}

}  // namespace rl4sys::kernels
