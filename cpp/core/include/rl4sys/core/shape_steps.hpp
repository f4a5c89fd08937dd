#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "rl4sys/core/step.hpp"

/// Operations that rearrange values.
namespace rl4sys::detail {

class SliceStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t start = integerOption(operation, "start", 0);
        const std::size_t length = integerOption(operation, "length");
        if (start + length <= sizes[0]) return {.result = length};
        reject(operation, "selects up to number " + std::to_string(start + length) + " of an input of " +
                              std::to_string(sizes[0]));
    }

    SliceStep(const Operation& operation, Slots inputs, Slot result)
        : input_{inputs[0].offset + integerOption(operation, "start", 0), result.size}, output_(result) {}

    void run(const Frame& frame) const override { std::copy_n(frame.at(input_), output_.size, frame.at(output_)); }

private:
    Slot input_;
    Slot output_;
};

class ConcatStep final : public Step {
public:
    static Requirements requirements(const Operation&, Sizes sizes) {
        std::size_t total = 0;
        for (const std::size_t size : sizes) total = std::min(total + size, maxValues + 1);
        return {.result = total};
    }

    ConcatStep(const Operation&, Slots inputs, Slot result) : input_(inputs.begin(), inputs.end()), output_(result) {}

    void run(const Frame& frame) const override {
        float* end = frame.at(output_);
        for (const Slot& slot : input_) end = std::copy_n(frame.at(slot), slot.size, end);
    }

private:
    std::vector<Slot> input_;
    Slot output_;
};

class TransposeStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        rowsOf(operation, sizes[0]);
        return {.result = sizes[0]};
    }

    TransposeStep(const Operation& operation, Slots inputs, Slot result)
        : rows_(integerOption(operation, "rows")), columns_(result.size / rows_), input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        const float* from = frame.at(input_);
        float* to = frame.at(output_);
        for (std::size_t column = 0; column < columns_; ++column) {
            for (std::size_t row = 0; row < rows_; ++row) *to++ = from[row * columns_ + column];
        }
    }

private:
    std::size_t rows_;
    std::size_t columns_;
    Slot input_;
    Slot output_;
};

class JoinRowsStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        return {.result = std::min(sizes[0] + product({rows, sizes[1]}), maxValues + 1)};
    }

    JoinRowsStep(const Operation& operation, Slots inputs, Slot result)
        : width_(inputs[0].size / integerOption(operation, "rows")), input_(inputs[0]), vector_(inputs[1]),
          output_(result) {}

    void run(const Frame& frame) const override {
        float* end = frame.at(output_);
        for (std::size_t done = 0; done < input_.size; done += width_) {
            end = std::copy_n(frame.at(input_) + done, width_, end);
            end = std::copy_n(frame.at(vector_), vector_.size, end);
        }
    }

private:
    std::size_t width_;
    Slot input_;
    Slot vector_;
    Slot output_;
};

}  // namespace rl4sys::detail
