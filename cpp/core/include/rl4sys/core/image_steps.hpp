#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "rl4sys/core/step.hpp"

/// Convolution and pooling of images.
namespace rl4sys::detail {

/// One axis of an image, with the positions of a sliding window along this axis.
struct Axis {
    std::size_t length;
    std::size_t window;
    std::size_t stride;
    std::size_t padding;

    /// Number of window positions.
    std::size_t positions() const noexcept {
        const std::size_t padded = length + 2 * padding;
        return padded < window ? 0 : (padded - window) / stride + 1;
    }

    /// First window position at which the window does not start in the padding.
    std::size_t firstInside() const noexcept { return std::min((padding + stride - 1) / stride, positions()); }

    /// End (exclusive) of the window positions at which the window does not end in the padding; at least `firstInside`.
    std::size_t endInside() const noexcept {
        if (length + padding < window) return firstInside();
        return std::clamp((length + padding - window) / stride + 1, firstInside(), positions());
    }

    /// Begin and end of the part of the window that is inside the image, relative to the start of the window.
    std::pair<std::size_t, std::size_t> part(std::size_t position) const noexcept {
        const std::size_t begin = position * stride;
        const std::size_t from = std::min(begin < padding ? padding - begin : 0, window);
        const std::size_t end = length + padding > begin ? std::min(length + padding - begin, window) : 0;
        return {from, std::max(from, end)};
    }

    /// Image coordinate of element `inWindow` of the window.
    std::size_t index(std::size_t position, std::size_t inWindow) const noexcept {
        return position * stride + inWindow - padding;
    }
};

/// Image in channels-last layout, with a sliding window.
struct Image {
    Axis vertical;
    Axis horizontal;
    std::size_t channels;

    static Image of(const Operation& operation, std::size_t size, std::size_t windowHeight, std::size_t windowWidth) {
        const std::size_t height = integerOption(operation, "height");
        const std::size_t width = integerOption(operation, "width");
        if (size % (height * width) != 0) {
            reject(operation, "got " + std::to_string(size) + " numbers, which do not fit an image of " +
                                  std::to_string(height) + " x " + std::to_string(width));
        }
        const std::size_t stride = integerOption(operation, "stride");
        const std::size_t padding = integerOption(operation, "padding", 0);
        const Image image{{height, windowHeight, stride, padding}, {width, windowWidth, stride, padding},
                          size / (height * width)};
        if (image.vertical.positions() == 0 || image.horizontal.positions() == 0) {
            reject(operation, "has a window larger than its image of " + std::to_string(height) + " x " +
                                  std::to_string(width));
        }
        return image;
    }

    Requirements requirements(std::size_t outputs, std::size_t temporary) const {
        const std::size_t margin = 2 * vertical.padding;
        const std::size_t padded =
            margin == 0 ? 0 : product({vertical.length + margin, horizontal.length + margin, channels});
        return {.result = product({vertical.positions(), horizontal.positions(), outputs}),
                .temporary = temporary,
                .padded = padded};
    }

    std::size_t offset(std::size_t y, std::size_t x) const noexcept { return (y * horizontal.length + x) * channels; }
};

/// Convolution, computed as a matrix product for each patch of the image. Patches inside the image are read in place.
/// Patches that extend into the padding are copied to a buffer first.
class Conv2dStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t outputs = outputsOf(operation);
        const std::size_t kernelHeight = std::max<std::size_t>(axisOf(operation, 0, 1), 1);
        const std::size_t kernelWidth = std::max<std::size_t>(axisOf(operation, 0, 2), 1);
        const Image image = Image::of(operation, sizes[0], kernelHeight, kernelWidth);
        checkShapes(operation, sizes[0], {{outputs, kernelHeight, kernelWidth, image.channels}, {outputs}});
        return image.requirements(outputs, patchesPerBlock * kernelHeight * kernelWidth * image.channels);
    }

    Conv2dStep(const Operation& operation, Slots inputs, Slot result)
        : dense_(operation.weights[0], operation.weights[1]),
          image_(Image::of(operation, inputs[0].size, axisOf(operation, 0, 1), axisOf(operation, 0, 2))),
          input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        const Axis& across = image_.horizontal;
        for (std::size_t y = 0; y < image_.vertical.positions(); ++y) {
            const bool inside = y >= image_.vertical.firstInside() && y < image_.vertical.endInside();
            const std::size_t first = inside ? across.firstInside() : across.positions();
            const std::size_t end = inside ? across.endInside() : across.positions();
            runGathered(frame, y, 0, first);
            if (first < end) runInside(frame, y, first, end);
            runGathered(frame, y, end, across.positions());
        }
    }

private:
    /// Number of patches that are copied to the buffer and multiplied together.
    static constexpr std::size_t patchesPerBlock = kernels::LinearRows::maxRows;

    float* output(const Frame& frame, std::size_t y, std::size_t x) const {
        return frame.at(output_) + (y * image_.horizontal.positions() + x) * dense_.outputs();
    }

    void runInside(const Frame& frame, std::size_t y, std::size_t first, std::size_t end) const {
        const Axis& across = image_.horizontal;
        const float* input = frame.at(input_) + image_.offset(image_.vertical.index(y, 0), across.index(first, 0));
        dense_.multiplyRows(frame, end - first,
                            {input, across.stride * image_.channels, output(frame, y, first), dense_.outputs()},
                            image_.vertical.window, across.length * image_.channels);
    }

    void runGathered(const Frame& frame, std::size_t y, std::size_t first, std::size_t end) const {
        while (first < end) {
            const std::size_t count = std::min(patchesPerBlock, end - first);
            for (std::size_t i = 0; i < count; ++i) gather(frame, y, first + i, frame.temporary + i * dense_.inputs());
            dense_.multiplyRows(frame, count,
                                {frame.temporary, dense_.inputs(), output(frame, y, first), dense_.outputs()});
            first += count;
        }
    }

    void gather(const Frame& frame, std::size_t y, std::size_t x, float* patch) const {
        const auto [top, bottom] = image_.vertical.part(y);
        const auto [left, right] = image_.horizontal.part(x);
        const std::size_t line = image_.horizontal.window * image_.channels;
        std::fill_n(patch, dense_.inputs(), 0.0f);
        if (left == right) return;
        for (std::size_t row = top; row < bottom; ++row) {
            const std::size_t from = image_.offset(image_.vertical.index(y, row), image_.horizontal.index(x, left));
            std::copy_n(frame.at(input_) + from, (right - left) * image_.channels,
                        patch + row * line + left * image_.channels);
        }
    }

    Dense dense_;
    Image image_;
    Slot input_;
    Slot output_;
};

class MaxPoolStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t size = integerOption(operation, "size");
        if (integerOption(operation, "padding", 0) >= size) reject(operation, "needs a padding smaller than its size");
        const Image image = Image::of(operation, sizes[0], size, size);
        return image.requirements(image.channels, 0);
    }

    MaxPoolStep(const Operation& operation, Slots inputs, Slot result)
        : image_(Image::of(operation, inputs[0].size, integerOption(operation, "size"),
                           integerOption(operation, "size"))),
          input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        float* to = frame.at(output_);
        for (std::size_t y = 0; y < image_.vertical.positions(); ++y) {
            for (std::size_t x = 0; x < image_.horizontal.positions(); ++x, to += image_.channels) {
                pool(frame, y, x, to);
            }
        }
    }

private:
    void pool(const Frame& frame, std::size_t y, std::size_t x, float* largest) const {
        const auto [top, bottom] = image_.vertical.part(y);
        const auto [left, right] = image_.horizontal.part(x);
        std::fill_n(largest, image_.channels, -std::numeric_limits<float>::infinity());
        for (std::size_t row = top; row < bottom; ++row) {
            for (std::size_t column = left; column < right; ++column) {
                const std::size_t from =
                    image_.offset(image_.vertical.index(y, row), image_.horizontal.index(x, column));
                frame.kernels.maximum(frame.at(input_) + from, largest, image_.channels);
            }
        }
    }

    Image image_;
    Slot input_;
    Slot output_;
};

}  // namespace rl4sys::detail
