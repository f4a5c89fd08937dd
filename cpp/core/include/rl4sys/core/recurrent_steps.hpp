#pragma once

#include <algorithm>
#include <cstddef>

#include "rl4sys/core/step.hpp"

/// Operations with a recurrent state: GRU and LSTM cells.
namespace rl4sys::detail {

/// Shared implementation of `gru` and `lstm`. Computes the gates from the input and the recurrent state.
class RecurrentCell {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes, std::size_t gates, std::size_t parts) {
        const std::size_t size = std::max<std::size_t>(axisOf(operation, 1, 1), 1);
        const std::size_t stacked = product({gates, size});
        checkShapes(operation, sizes[0], {{stacked, sizes[0]}, {stacked, size}, {stacked}, {stacked}});
        return {.result = size,
                .temporary = 2 * slotSize(stacked) + slotSize(size),
                .memory = {integerOption(operation, "memory", 0), parts * size}};
    }

    RecurrentCell(const Operation& operation, Slots inputs, Slot result)
        : fromInput_(operation.weights[0], operation.weights[2]),
          fromMemory_(operation.weights[1], operation.weights[3]), memory_(integerOption(operation, "memory", 0)),
          input_(inputs[0]), output_(result) {}

    std::size_t size() const noexcept { return output_.size; }
    float* hidden(const Frame& frame) const noexcept { return frame.memory + memory_; }
    float* result(const Frame& frame) const noexcept { return frame.at(output_); }

    /// Scratch buffer for one state vector of the cell, after the gates.
    float* temporary(const Frame& frame) const noexcept { return frame.temporary + 2 * slotSize(fromInput_.outputs()); }

    kernels::Gates gates(const Frame& frame) const {
        float* const input = frame.temporary;
        float* const memory = frame.temporary + slotSize(fromInput_.outputs());
        fromInput_.multiply(frame, frame.at(input_), input);
        fromMemory_.multiply(frame, hidden(frame), memory);
        return {input, memory, size()};
    }

private:
    Dense fromInput_;
    Dense fromMemory_;
    std::size_t memory_;
    Slot input_;
    Slot output_;
};

class GruStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        return RecurrentCell::requirements(operation, sizes, 3, 1);
    }

    GruStep(const Operation& operation, Slots inputs, Slot result) : cell_(operation, inputs, result) {}

    void run(const Frame& frame) const override {
        const kernels::Gates gates = cell_.gates(frame);
        frame.kernels.gruGates(&gates, cell_.hidden(frame), cell_.result(frame));
        std::copy_n(cell_.result(frame), cell_.size(), cell_.hidden(frame));
    }

private:
    RecurrentCell cell_;
};

class LstmStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        return RecurrentCell::requirements(operation, sizes, 4, 2);
    }

    LstmStep(const Operation& operation, Slots inputs, Slot result) : cell_(operation, inputs, result) {}

    void run(const Frame& frame) const override {
        const kernels::Gates gates = cell_.gates(frame);
        float* const cellState = cell_.hidden(frame) + cell_.size();
        float* const cell = cell_.temporary(frame);
        std::copy_n(cellState, cell_.size(), cell);
        frame.kernels.lstmGates(&gates, cell, cell_.result(frame));
        std::copy_n(cell_.result(frame), cell_.size(), cell_.hidden(frame));
        std::copy_n(cell, cell_.size(), cellState);
    }

private:
    RecurrentCell cell_;
};

}  // namespace rl4sys::detail
