#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "rl4sys/core/heads.hpp"
#include "rl4sys/core/row_steps.hpp"
#include "rl4sys/core/step.hpp"

/// Multi-head attention of the rows of a value to keys and values.
namespace rl4sys::detail {

class AttentionStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        const std::size_t keys = integerOption(operation, "keys");
        const std::size_t width = sizes[0] / rows;
        if (width % integerOption(operation, "heads") != 0) {
            reject(operation,
                   "got rows of " + std::to_string(width) + " numbers, which is not a multiple of its heads");
        }
        checkSize(operation, "keys", sizes[1], product({keys, width}));
        checkSize(operation, "values", sizes[2], product({keys, width}));
        if (sizes.size() > 3) checkSize(operation, "mask", sizes[3], keys);
        const std::size_t gathered = sizes.size() > 3 ? 2 * slotSize(sizes[1]) : 0;
        return {.result = sizes[0], .temporary = gathered + rowsPerBlock * kernels::padded(keys)};
    }

    AttentionStep(const Operation& operation, Slots inputs, Slot result)
        : heads_(integerOption(operation, "heads")), keys_(integerOption(operation, "keys")),
          width_(result.size / integerOption(operation, "rows")), input_(inputs.begin(), inputs.end()),
          output_(result) {}

    void run(const Frame& frame) const override {
        const KeyValues given = gatherLegal(frame);
        const bool hasNan = containsNan(frame, input_);
        if (hasNan || given.count == 0) {
            std::fill_n(frame.at(output_), output_.size, hasNan ? heads::quietNan : 0.0f);
            return;
        }
        const std::size_t rows = output_.size / width_;
        for (std::size_t row = 0; row < rows; row += rowsPerBlock) {
            for (std::size_t head = 0; head < heads_; ++head) {
                attend(frame, given, row, std::min(rowsPerBlock, rows - row), head * width_ / heads_);
            }
        }
    }

private:
    /// Number of rows that are computed together, so that each load of the attended values serves several rows.
    static constexpr std::size_t rowsPerBlock = kernels::LinearRows::maxRows;

    /// Keys and values that the rows attend to, and a buffer for the attention weights.
    struct KeyValues {
        const float* keys;
        const float* values;
        std::size_t count;
        float* weights;
    };

    /// Return the keys and values that the rows attend to. With a mask, only legal keys and values are used, which are
    /// copied to contiguous memory.
    KeyValues gatherLegal(const Frame& frame) const {
        if (input_.size() < 4) return {frame.at(input_[1]), frame.at(input_[2]), keys_, frame.temporary};
        float* const keys = frame.temporary;
        float* const values = keys + slotSize(input_[1].size);
        std::size_t count = 0;
        for (std::size_t key = 0; key < keys_; ++key) {
            if (!isLegal(frame.at(input_[3]), key)) continue;
            std::copy_n(frame.at(input_[1]) + key * width_, width_, keys + count * width_);
            std::copy_n(frame.at(input_[2]) + key * width_, width_, values + count * width_);
            ++count;
        }
        return {keys, values, count, values + slotSize(input_[2].size)};
    }

    /// Compute one head, which starts at `offset` in each row, for a block of rows.
    void attend(const Frame& frame, const KeyValues& given, std::size_t row, std::size_t rows,
                std::size_t offset) const {
        const std::size_t size = width_ / heads_;
        const std::size_t first = row * width_ + offset;
        const std::size_t stride = kernels::padded(given.count);
        const float factor = 1.0f / std::sqrt(static_cast<float>(size));
        for (std::size_t i = 0; i < rows; ++i) {
            float* const weights = given.weights + i * stride;
            frame.kernels.scores(frame.at(input_[0]) + first + i * width_, given.keys + offset, width_, size, factor,
                                 weights, given.count);
            frame.kernels.softmax(weights, given.count);
        }
        const kernels::RowsLayer values{given.values + offset, width_, nullptr, size, 1, given.count, 0};
        const kernels::RowBlock block{given.weights, stride, frame.at(output_) + first, width_};
        frame.kernels.linearRows(&values, rows, &block);
    }

    std::size_t heads_;
    std::size_t keys_;
    std::size_t width_;
    std::vector<Slot> input_;
    Slot output_;
};

}  // namespace rl4sys::detail
