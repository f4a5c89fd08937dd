#pragma once

#include <cstddef>

#include "rl4sys/core/elementwise_kernels.hpp"
#include "rl4sys/core/lanes.hpp"
#include "rl4sys/core/linear_kernels.hpp"
#include "rl4sys/core/row_kernels.hpp"

namespace rl4sys::kernels {

/// Table of inference kernels. Each entry is the version for the instruction set of this processor.
struct Table {
    using Activation = void (*)(float* values, std::size_t count);

    void (*linear)(const LinearLayer*, const float*, float*) =
        select<Linear, const LinearLayer*, const float*, float*>();
    void (*linearRows)(const RowsLayer*, std::size_t, const RowBlock*) =
        select<LinearRows, const RowsLayer*, std::size_t, const RowBlock*>();

    // Kernels for counts padded to whole vectors.
    void (*normalize)(const float*, const float*, float, float*, std::size_t) =
        select<Normalize, const float*, const float*, float, float*, std::size_t>();
    Activation tanh = select<Elementwise<Tanh>, float*, std::size_t>();
    Activation relu = select<Elementwise<Relu>, float*, std::size_t>();
    Activation elu = select<Elementwise<Elu>, float*, std::size_t>();
    Activation gelu = select<Elementwise<Gelu>, float*, std::size_t>();
    Activation silu = select<Elementwise<Silu>, float*, std::size_t>();
    void (*scale)(float, float*, std::size_t) = select<Scale, float, float*, std::size_t>();
    void (*add)(const float*, float*, std::size_t) = select<Pairwise<Plus>, const float*, float*, std::size_t>();
    void (*multiply)(const float*, float*, std::size_t) = select<Pairwise<Times>, const float*, float*, std::size_t>();
    void (*gruGates)(const Gates*, const float*, float*) = select<GruGates, const Gates*, const float*, float*>();
    void (*lstmGates)(const Gates*, float*, float*) = select<LstmGates, const Gates*, float*, float*>();

    // Kernels for exact counts.
    void (*layerNorm)(const float*, const float*, float, const float*, float*, std::size_t) =
        select<LayerNorm, const float*, const float*, float, const float*, float*, std::size_t>();
    void (*softmax)(float*, std::size_t) = select<Softmax, float*, std::size_t>();
    void (*scores)(const float*, const float*, std::size_t, std::size_t, float, float*, std::size_t) =
        select<Scores, const float*, const float*, std::size_t, std::size_t, float, float*, std::size_t>();
    void (*maximum)(const float*, float*, std::size_t) = select<Maximum, const float*, float*, std::size_t>();
    void (*addScaled)(const float*, float, float*, std::size_t) =
        select<AddScaled, const float*, float, float*, std::size_t>();
};

inline const Table& table() {
    static const Table chosen;
    return chosen;
}

}  // namespace rl4sys::kernels
