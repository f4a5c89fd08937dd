#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/draws.hpp"
#include "rl4sys/heads.hpp"
#include "rl4sys/kernels.hpp"
#include "rl4sys/operations.hpp"
#include "rl4sys/transpose.hpp"

/// The body's operations. Each says what it `needs` for given inputs, or why it does not fit them; is made when all
/// values have their places; and then runs.
namespace rl4sys::detail {

/// Where a value lies in the workspace. The room behind it up to `roomFor` its size may be read and written.
struct Place {
    std::size_t offset = 0;
    std::size_t size = 0;
};

/// Whole cache lines; one vector more than the numbers need, for kernels that take a vector from anywhere in a value.
constexpr std::size_t roomFor(std::size_t size) noexcept {
    constexpr std::size_t line = 16;
    return (kernels::padded(size) + kernels::padding + line - 1) / line * line;
}

/// What an operation needs and gives.
struct Needs {
    std::size_t result = 0;  ///< Numbers it gives.
    std::size_t spare = 0;   ///< Room it works in.
    std::size_t padded = 0;  ///< Numbers that are made on the way by the form that counts them, and limited by.
    std::size_t draws = 0;
    Place memory = {};       ///< Its part of the memory.
};

using Sizes = std::span<const std::size_t>;
using Places = std::span<const Place>;

/// What a step runs on.
struct Frame {
    float* values;
    float* spare;
    float* memory;  ///< With room for a vector behind it.
    Draws* draws;
    const kernels::Table& kernels;

    float* at(const Place& place) const noexcept { return values + place.offset; }
    std::span<const float> numbers(const Place& place) const noexcept { return {at(place), place.size}; }
};

/// An operation of the body that knows where its values lie.
class Step {
public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    virtual ~Step() = default;

    virtual void run(const Frame& frame) const = 0;
};

inline kernels::Floats paddedCopy(const std::vector<float>& values) {
    kernels::Floats copy(kernels::padded(values.size()));
    std::copy(values.begin(), values.end(), copy.begin());
    return copy;
}

/// A weight of `outputs` rows as kernels take it: output after output for each input, padded.
inline kernels::Floats transposed(const Tensor& weight) {
    const std::size_t outputs = weight.shape[0];
    const std::size_t inputs = weight.values.size() / outputs;
    const std::size_t stride = kernels::padded(outputs);
    kernels::Floats result(inputs * stride);
    kernels::transpose(weight.values.data(), outputs, inputs, result.data(), stride);
    return result;
}

/// Axis of a weight's shape; 0 where there is none, which then fits nothing.
inline std::size_t axisOf(const Operation& operation, std::size_t weight, std::size_t axis) {
    const std::vector<std::size_t>& shape = operation.weights[weight].shape;
    return axis < shape.size() ? shape[axis] : 0;
}

/// At least 1, so that no weight of no numbers fits.
inline std::size_t outputsOf(const Operation& operation) { return std::max<std::size_t>(axisOf(operation, 0, 0), 1); }

/// A matrix and its bias, for one row of inputs or several.
class Dense {
public:
    Dense(const Tensor& weight, const Tensor& bias)
        : weight_(transposed(weight)), bias_(paddedCopy(bias.values)), outputs_(weight.shape[0]),
          layer_{weight_.data(), bias_.data(), weight.values.size() / outputs_, bias_.size()} {}
    Dense(const Dense&) = delete;
    Dense& operator=(const Dense&) = delete;

    std::size_t outputs() const noexcept { return outputs_; }
    std::size_t inputs() const noexcept { return layer_.inputs; }

    /// Room behind the outputs is written.
    void multiply(const Frame& frame, const float* input, float* output) const {
        frame.kernels.linear(&layer_, input, output);
    }

    /// Each row's inputs are `segments` pieces, `segmentStride` apart.
    void multiplyRows(const Frame& frame, std::size_t rows, const kernels::RowsPlace& place, std::size_t segments = 1,
                      std::size_t segmentStride = 0) const {
        const kernels::RowsLayer layer{weight_.data(), bias_.size(),          bias_.data(), outputs_,
                                       segments,       inputs() / segments, segmentStride};
        frame.kernels.linearRows(&layer, rows, &place);
    }

private:
    kernels::Floats weight_;
    kernels::Floats bias_;
    std::size_t outputs_;
    kernels::LinearLayer layer_;
};

/// linear, and noisy_linear, whose noise is added here once and for all.
class LinearStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        const std::size_t outputs = outputsOf(operation);
        Shapes shapes{{outputs, sizes[0] / rows}, {outputs}};
        if (operation.weights.size() > 2) shapes.insert(shapes.end(), {shapes[0], shapes[1]});
        expectShapes(operation, sizes[0], shapes);
        return {.result = product({rows, outputs})};
    }

    LinearStep(const Operation& operation, Places inputs, Place result)
        : dense_(withNoise(operation, 0), withNoise(operation, 1)), rows_(inputs[0].size / dense_.inputs()),
          from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        if (rows_ == 1) return dense_.multiply(frame, frame.at(from_), frame.at(to_));
        dense_.multiplyRows(frame, rows_, {frame.at(from_), dense_.inputs(), frame.at(to_), dense_.outputs()});
    }

private:
    static Tensor withNoise(const Operation& operation, std::size_t weight) {
        Tensor sum = operation.weights[weight];
        if (operation.weights.size() == 2) return sum;
        const std::vector<float>& noise = operation.weights[weight + 2].values;
        std::transform(sum.values.begin(), sum.values.end(), noise.begin(), sum.values.begin(), std::plus<>());
        return sum;
    }

    Dense dense_;
    std::size_t rows_;
    Place from_;
    Place to_;
};

/// What is done number by number, in place; the input is copied first where others still need it.
class InPlace {
public:
    InPlace(Places inputs, Place result) : from_(inputs[0]), to_(result) {}

    /// Where the numbers are, and how many with their padding.
    std::pair<float*, std::size_t> begin(const Frame& frame) const {
        if (from_.offset != to_.offset) std::copy_n(frame.at(from_), from_.size, frame.at(to_));
        return {frame.at(to_), kernels::padded(to_.size)};
    }

private:
    Place from_;
    Place to_;
};

class NormalizeStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        expectShapes(operation, sizes[0], {{sizes[0]}, {sizes[0]}});
        return {.result = sizes[0]};
    }

    NormalizeStep(const Operation& operation, Places inputs, Place result)
        : mean_(paddedCopy(operation.weights[0].values)), scale_(paddedCopy(operation.weights[1].values)),
          limit_(static_cast<float>(option(operation, "limit"))), place_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = place_.begin(frame);
        frame.kernels.normalize(mean_.data(), scale_.data(), limit_, values, count);
    }

private:
    kernels::Floats mean_;
    kernels::Floats scale_;
    float limit_;
    InPlace place_;
};

class ActivationStep final : public Step {
public:
    static Needs needs(const Operation&, Sizes sizes) { return {.result = sizes[0]}; }

    ActivationStep(const Operation& operation, Places inputs, Place result)
        : function_(functionOf(operation.name)), place_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = place_.begin(frame);
        function_(values, count);
    }

private:
    static kernels::Table::Activation functionOf(const std::string& name) {
        const kernels::Table& table = kernels::table();
        const std::map<std::string, kernels::Table::Activation> functions{
            {"tanh", table.tanh}, {"relu", table.relu}, {"elu", table.elu}, {"gelu", table.gelu}, {"silu", table.silu}};
        return functions.at(name);
    }

    kernels::Table::Activation function_;
    InPlace place_;
};

class ScaleStep final : public Step {
public:
    static Needs needs(const Operation&, Sizes sizes) { return {.result = sizes[0]}; }

    ScaleStep(const Operation& operation, Places inputs, Place result)
        : factor_(static_cast<float>(option(operation, "factor"))), place_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = place_.begin(frame);
        frame.kernels.scale(factor_, values, count);
    }

private:
    float factor_;
    InPlace place_;
};

class BiasStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        expectShapes(operation, sizes[0], {{sizes[0]}});
        return {.result = sizes[0]};
    }

    BiasStep(const Operation& operation, Places inputs, Place result)
        : bias_(paddedCopy(operation.weights[0].values)), place_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = place_.begin(frame);
        frame.kernels.add(bias_.data(), values, count);
    }

private:
    kernels::Floats bias_;
    InPlace place_;
};

/// `add` and `multiply`.
class PairStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        expectSize(operation, "the second input", sizes[1], sizes[0]);
        return {.result = sizes[0]};
    }

    PairStep(const Operation& operation, Places inputs, Place result)
        : adds_(operation.name == "add"), place_(inputs, result), other_(inputs[1]) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = place_.begin(frame);
        (adds_ ? frame.kernels.add : frame.kernels.multiply)(frame.at(other_), values, count);
    }

private:
    bool adds_;
    InPlace place_;
    Place other_;
};

class LayerNormStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t width = sizes[0] / rowsOf(operation, sizes[0]);
        expectShapes(operation, sizes[0], {{width}, {width}});
        return {.result = sizes[0]};
    }

    LayerNormStep(const Operation& operation, Places inputs, Place result)
        : scale_(operation.weights[0].values), bias_(operation.weights[1].values),
          epsilon_(static_cast<float>(option(operation, "epsilon"))), from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        for (std::size_t done = 0; done < from_.size; done += scale_.size()) {
            frame.kernels.layerNorm(scale_.data(), bias_.data(), epsilon_, frame.at(from_) + done,
                                    frame.at(to_) + done, scale_.size());
        }
    }

private:
    std::vector<float> scale_;
    std::vector<float> bias_;
    float epsilon_;
    Place from_;
    Place to_;
};

class SliceStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t start = whole(operation, "start", 0);
        const std::size_t length = whole(operation, "length");
        if (start + length <= sizes[0]) return {.result = length};
        refuse(operation, "takes numbers up to " + std::to_string(start + length) + " of " + std::to_string(sizes[0]));
    }

    SliceStep(const Operation& operation, Places inputs, Place result)
        : from_{inputs[0].offset + whole(operation, "start", 0), result.size}, to_(result) {}

    void run(const Frame& frame) const override { std::copy_n(frame.at(from_), to_.size, frame.at(to_)); }

private:
    Place from_;
    Place to_;
};

class ConcatStep final : public Step {
public:
    static Needs needs(const Operation&, Sizes sizes) {
        std::size_t total = 0;
        for (const std::size_t size : sizes) total = std::min(total + size, mostNumbers + 1);
        return {.result = total};
    }

    ConcatStep(const Operation&, Places inputs, Place result) : from_(inputs.begin(), inputs.end()), to_(result) {}

    void run(const Frame& frame) const override {
        float* end = frame.at(to_);
        for (const Place& place : from_) end = std::copy_n(frame.at(place), place.size, end);
    }

private:
    std::vector<Place> from_;
    Place to_;
};

class TransposeStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        rowsOf(operation, sizes[0]);
        return {.result = sizes[0]};
    }

    TransposeStep(const Operation& operation, Places inputs, Place result)
        : rows_(whole(operation, "rows")), columns_(result.size / rows_), from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        const float* from = frame.at(from_);
        float* to = frame.at(to_);
        for (std::size_t column = 0; column < columns_; ++column) {
            for (std::size_t row = 0; row < rows_; ++row) *to++ = from[row * columns_ + column];
        }
    }

private:
    std::size_t rows_;
    std::size_t columns_;
    Place from_;
    Place to_;
};

/// Where windows stand along one axis of an image.
struct Axis {
    std::size_t length;
    std::size_t window;
    std::size_t stride;
    std::size_t padding;

    /// How many there are.
    std::size_t places() const noexcept {
        const std::size_t padded = length + 2 * padding;
        return padded < window ? 0 : (padded - window) / stride + 1;
    }

    /// The first that does not begin in the padding.
    std::size_t firstInside() const noexcept { return std::min((padding + stride - 1) / stride, places()); }

    /// The one after the last that does not end in the padding; at least `firstInside`.
    std::size_t endInside() const noexcept {
        if (length + padding < window) return firstInside();
        return std::clamp((length + padding - window) / stride + 1, firstInside(), places());
    }

    /// The part of the window that is of the image: from and to, counted from the window's beginning.
    std::pair<std::size_t, std::size_t> part(std::size_t place) const noexcept {
        const std::size_t begin = place * stride;
        const std::size_t from = std::min(begin < padding ? padding - begin : 0, window);
        const std::size_t end = length + padding > begin ? std::min(length + padding - begin, window) : 0;
        return {from, std::max(from, end)};
    }

    /// Where in the image the number lies that is `inWindow` from the window's beginning.
    std::size_t index(std::size_t place, std::size_t inWindow) const noexcept {
        return place * stride + inWindow - padding;
    }
};

/// An image of some channels, channels last, and a window that moves over it.
struct Image {
    Axis vertical;
    Axis horizontal;
    std::size_t channels;

    static Image of(const Operation& operation, std::size_t size, std::size_t windowHeight, std::size_t windowWidth) {
        const std::size_t height = whole(operation, "height");
        const std::size_t width = whole(operation, "width");
        if (size % (height * width) != 0) {
            refuse(operation, "got " + std::to_string(size) + " numbers, which are no image of " +
                                  std::to_string(height) + " x " + std::to_string(width));
        }
        const std::size_t stride = whole(operation, "stride");
        const std::size_t padding = whole(operation, "padding", 0);
        const Image image{{height, windowHeight, stride, padding}, {width, windowWidth, stride, padding},
                          size / (height * width)};
        if (image.vertical.places() == 0 || image.horizontal.places() == 0) {
            refuse(operation, "has a window larger than its image of " + std::to_string(height) + " x " +
                                  std::to_string(width));
        }
        return image;
    }

    Needs needs(std::size_t outputs, std::size_t spare) const {
        const std::size_t margin = 2 * vertical.padding;
        const std::size_t padded =
            margin == 0 ? 0 : product({vertical.length + margin, horizontal.length + margin, channels});
        return {.result = product({vertical.places(), horizontal.places(), outputs}), .spare = spare, .padded = padded};
    }

    std::size_t offset(std::size_t y, std::size_t x) const noexcept { return (y * horizontal.length + x) * channels; }
};

/// A product with every patch of the image. Patches inside it are read where they lie, those that reach into the
/// padding are gathered.
class Conv2dStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t outputs = outputsOf(operation);
        const std::size_t kernelHeight = std::max<std::size_t>(axisOf(operation, 0, 1), 1);
        const std::size_t kernelWidth = std::max<std::size_t>(axisOf(operation, 0, 2), 1);
        const Image image = Image::of(operation, sizes[0], kernelHeight, kernelWidth);
        expectShapes(operation, sizes[0], {{outputs, kernelHeight, kernelWidth, image.channels}, {outputs}});
        return image.needs(outputs, gathered * kernelHeight * kernelWidth * image.channels);
    }

    Conv2dStep(const Operation& operation, Places inputs, Place result)
        : dense_(operation.weights[0], operation.weights[1]),
          image_(Image::of(operation, inputs[0].size, axisOf(operation, 0, 1), axisOf(operation, 0, 2))),
          from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        const Axis& across = image_.horizontal;
        for (std::size_t y = 0; y < image_.vertical.places(); ++y) {
            const bool inside = y >= image_.vertical.firstInside() && y < image_.vertical.endInside();
            const std::size_t first = inside ? across.firstInside() : across.places();
            const std::size_t end = inside ? across.endInside() : across.places();
            runGathered(frame, y, 0, first);
            if (first < end) runInside(frame, y, first, end);
            runGathered(frame, y, end, across.places());
        }
    }

private:
    /// Patches that are gathered before they are multiplied.
    static constexpr std::size_t gathered = kernels::LinearRows::mostRows;

    float* output(const Frame& frame, std::size_t y, std::size_t x) const {
        return frame.at(to_) + (y * image_.horizontal.places() + x) * dense_.outputs();
    }

    void runInside(const Frame& frame, std::size_t y, std::size_t first, std::size_t end) const {
        const Axis& across = image_.horizontal;
        const float* input = frame.at(from_) + image_.offset(image_.vertical.index(y, 0), across.index(first, 0));
        dense_.multiplyRows(frame, end - first,
                            {input, across.stride * image_.channels, output(frame, y, first), dense_.outputs()},
                            image_.vertical.window, across.length * image_.channels);
    }

    void runGathered(const Frame& frame, std::size_t y, std::size_t first, std::size_t end) const {
        while (first < end) {
            const std::size_t count = std::min(gathered, end - first);
            for (std::size_t i = 0; i < count; ++i) gather(frame, y, first + i, frame.spare + i * dense_.inputs());
            dense_.multiplyRows(frame, count,
                                {frame.spare, dense_.inputs(), output(frame, y, first), dense_.outputs()});
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
            std::copy_n(frame.at(from_) + from, (right - left) * image_.channels,
                        patch + row * line + left * image_.channels);
        }
    }

    Dense dense_;
    Image image_;
    Place from_;
    Place to_;
};

class MaxPoolStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t size = whole(operation, "size");
        if (whole(operation, "padding", 0) >= size) refuse(operation, "takes a padding smaller than its size");
        const Image image = Image::of(operation, sizes[0], size, size);
        return image.needs(image.channels, 0);
    }

    MaxPoolStep(const Operation& operation, Places inputs, Place result)
        : image_(Image::of(operation, inputs[0].size, whole(operation, "size"), whole(operation, "size"))),
          from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        float* to = frame.at(to_);
        for (std::size_t y = 0; y < image_.vertical.places(); ++y) {
            for (std::size_t x = 0; x < image_.horizontal.places(); ++x, to += image_.channels) pool(frame, y, x, to);
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
                frame.kernels.larger(frame.at(from_) + from, largest, image_.channels);
            }
        }
    }

    Image image_;
    Place from_;
    Place to_;
};

class JoinRowsStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        return {.result = std::min(sizes[0] + product({rows, sizes[1]}), mostNumbers + 1)};
    }

    JoinRowsStep(const Operation& operation, Places inputs, Place result)
        : width_(inputs[0].size / whole(operation, "rows")), from_(inputs[0]), vector_(inputs[1]), to_(result) {}

    void run(const Frame& frame) const override {
        float* end = frame.at(to_);
        for (std::size_t done = 0; done < from_.size; done += width_) {
            end = std::copy_n(frame.at(from_) + done, width_, end);
            end = std::copy_n(frame.at(vector_), vector_.size, end);
        }
    }

private:
    std::size_t width_;
    Place from_;
    Place vector_;
    Place to_;
};

/// Whether a part takes part: its number among the legal ones is over 0.5.
inline bool isLegal(const float* legal, std::size_t part) noexcept { return legal == nullptr || legal[part] > 0.5f; }

/// Whether a NaN is among the numbers: it must reach the head though what is not legal takes no part.
inline bool isSpoilt(const Frame& frame, const std::vector<Place>& places) {
    return std::ranges::any_of(places, [&](const Place& place) { return heads::anyNan(frame.numbers(place)); });
}

class AttentionStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        const std::size_t keys = whole(operation, "keys");
        const std::size_t width = sizes[0] / rows;
        if (width % whole(operation, "heads") != 0) {
            refuse(operation, "got rows of " + std::to_string(width) + " numbers, which its heads cannot share");
        }
        expectSize(operation, "keys", sizes[1], product({keys, width}));
        expectSize(operation, "values", sizes[2], product({keys, width}));
        if (sizes.size() > 3) expectSize(operation, "the legal ones", sizes[3], keys);
        const std::size_t gathered = sizes.size() > 3 ? 2 * roomFor(sizes[1]) : 0;
        return {.result = sizes[0], .spare = gathered + together * kernels::padded(keys)};
    }

    AttentionStep(const Operation& operation, Places inputs, Place result)
        : heads_(whole(operation, "heads")), keys_(whole(operation, "keys")),
          width_(result.size / whole(operation, "rows")), from_(inputs.begin(), inputs.end()), to_(result) {}

    void run(const Frame& frame) const override {
        const Remembered given = legalOnes(frame);
        const bool spoilt = isSpoilt(frame, from_);
        if (spoilt || given.count == 0) {
            std::fill_n(frame.at(to_), to_.size, spoilt ? heads::notANumber : 0.0f);
            return;
        }
        const std::size_t rows = to_.size / width_;
        for (std::size_t row = 0; row < rows; row += together) {
            for (std::size_t head = 0; head < heads_; ++head) {
                attend(frame, given, row, std::min(together, rows - row), head * width_ / heads_);
            }
        }
    }

private:
    /// Rows that share what they read of the values.
    static constexpr std::size_t together = kernels::LinearRows::mostRows;

    /// What is attended to: keys and their values, and room to weigh them in.
    struct Remembered {
        const float* keys;
        const float* values;
        std::size_t count;
        float* weights;
    };

    /// The legal ones, moved together.
    Remembered legalOnes(const Frame& frame) const {
        if (from_.size() < 4) return {frame.at(from_[1]), frame.at(from_[2]), keys_, frame.spare};
        float* const keys = frame.spare;
        float* const values = keys + roomFor(from_[1].size);
        std::size_t count = 0;
        for (std::size_t key = 0; key < keys_; ++key) {
            if (!isLegal(frame.at(from_[3]), key)) continue;
            std::copy_n(frame.at(from_[1]) + key * width_, width_, keys + count * width_);
            std::copy_n(frame.at(from_[2]) + key * width_, width_, values + count * width_);
            ++count;
        }
        return {keys, values, count, values + roomFor(from_[2].size)};
    }

    /// One head, whose numbers begin at `offset` in each row, for some rows.
    void attend(const Frame& frame, const Remembered& given, std::size_t row, std::size_t rows,
                std::size_t offset) const {
        const std::size_t size = width_ / heads_;
        const std::size_t first = row * width_ + offset;
        const std::size_t stride = kernels::padded(given.count);
        const float factor = 1.0f / std::sqrt(static_cast<float>(size));
        for (std::size_t i = 0; i < rows; ++i) {
            float* const weights = given.weights + i * stride;
            frame.kernels.scores(frame.at(from_[0]) + first + i * width_, given.keys + offset, width_, size, factor,
                                 weights, given.count);
            frame.kernels.softmax(weights, given.count);
        }
        const kernels::RowsLayer values{given.values + offset, width_, nullptr, size, 1, given.count, 0};
        const kernels::RowsPlace place{given.weights, stride, frame.at(to_) + first, width_};
        frame.kernels.linearRows(&values, rows, &place);
    }

    std::size_t heads_;
    std::size_t keys_;
    std::size_t width_;
    std::vector<Place> from_;
    Place to_;
};

class MeanRowsStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        if (sizes.size() > 1) expectSize(operation, "the legal ones", sizes[1], rows);
        return {.result = sizes[0] / rows};
    }

    MeanRowsStep(const Operation& operation, Places inputs, Place result)
        : rows_(whole(operation, "rows")), from_(inputs.begin(), inputs.end()), to_(result) {}

    void run(const Frame& frame) const override {
        const float* legal = from_.size() > 1 ? frame.at(from_[1]) : nullptr;
        float* mean = frame.at(to_);
        std::fill_n(mean, to_.size, isSpoilt(frame, from_) ? heads::notANumber : 0.0f);
        std::size_t count = 0;
        for (std::size_t row = 0; row < rows_; ++row) count += isLegal(legal, row) ? 1 : 0;
        const float share = 1.0f / static_cast<float>(std::max<std::size_t>(count, 1));
        for (std::size_t row = 0; row < rows_; ++row) {
            if (!isLegal(legal, row)) continue;
            frame.kernels.addScaled(frame.at(from_[0]) + row * to_.size, share, mean, to_.size);
        }
    }

private:
    std::size_t rows_;
    std::vector<Place> from_;
    Place to_;
};

/// What `gru` and `lstm` have in common: gates from the input and from the memory.
class Cell {
public:
    static Needs needs(const Operation& operation, Sizes sizes, std::size_t gates, std::size_t parts) {
        const std::size_t size = std::max<std::size_t>(axisOf(operation, 1, 1), 1);
        const std::size_t stacked = product({gates, size});
        expectShapes(operation, sizes[0], {{stacked, sizes[0]}, {stacked, size}, {stacked}, {stacked}});
        return {.result = size,
                .spare = 2 * roomFor(stacked) + roomFor(size),
                .memory = {whole(operation, "memory", 0), parts * size}};
    }

    Cell(const Operation& operation, Places inputs, Place result)
        : fromInput_(operation.weights[0], operation.weights[2]),
          fromMemory_(operation.weights[1], operation.weights[3]), memory_(whole(operation, "memory", 0)),
          from_(inputs[0]), to_(result) {}

    std::size_t size() const noexcept { return to_.size; }
    float* hidden(const Frame& frame) const noexcept { return frame.memory + memory_; }
    float* result(const Frame& frame) const noexcept { return frame.at(to_); }

    /// Behind the gates there is room for one number for each of the memory's.
    float* spare(const Frame& frame) const noexcept { return frame.spare + 2 * roomFor(fromInput_.outputs()); }

    kernels::Gates gates(const Frame& frame) const {
        float* const input = frame.spare;
        float* const memory = frame.spare + roomFor(fromInput_.outputs());
        fromInput_.multiply(frame, frame.at(from_), input);
        fromMemory_.multiply(frame, hidden(frame), memory);
        return {input, memory, size()};
    }

private:
    Dense fromInput_;
    Dense fromMemory_;
    std::size_t memory_;
    Place from_;
    Place to_;
};

class GruStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) { return Cell::needs(operation, sizes, 3, 1); }

    GruStep(const Operation& operation, Places inputs, Place result) : cell_(operation, inputs, result) {}

    void run(const Frame& frame) const override {
        const kernels::Gates gates = cell_.gates(frame);
        frame.kernels.gruGates(&gates, cell_.hidden(frame), cell_.result(frame));
        std::copy_n(cell_.result(frame), cell_.size(), cell_.hidden(frame));
    }

private:
    Cell cell_;
};

class LstmStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) { return Cell::needs(operation, sizes, 4, 2); }

    LstmStep(const Operation& operation, Places inputs, Place result) : cell_(operation, inputs, result) {}

    void run(const Frame& frame) const override {
        const kernels::Gates gates = cell_.gates(frame);
        float* const remembered = cell_.hidden(frame) + cell_.size();
        float* const cell = cell_.spare(frame);
        std::copy_n(remembered, cell_.size(), cell);
        frame.kernels.lstmGates(&gates, cell, cell_.result(frame));
        std::copy_n(cell_.result(frame), cell_.size(), cell_.hidden(frame));
        std::copy_n(cell, cell_.size(), remembered);
    }

private:
    Cell cell_;
};

class NoiseStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes) {
        const std::size_t size = whole(operation, "size");
        return {.result = size, .draws = option(operation, "scale") == 0.0 ? 0 : 2 * size};
    }

    NoiseStep(const Operation& operation, Places, Place result) : scale_(option(operation, "scale")), to_(result) {}

    void run(const Frame& frame) const override {
        float* const noise = frame.at(to_);
        for (std::size_t i = 0; i < to_.size; ++i) {
            noise[i] = scale_ == 0.0 ? 0.0f : static_cast<float>(scale_ * heads::normal(*frame.draws));
        }
    }

private:
    double scale_;
    Place to_;
};

class ExpectationStep final : public Step {
public:
    static Needs needs(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        expectShapes(operation, sizes[0], {{sizes[0] / rows}});
        return {.result = rows, .spare = sizes[0] / rows};
    }

    ExpectationStep(const Operation& operation, Places inputs, Place result)
        : support_(operation.weights[0].values), from_(inputs[0]), to_(result) {}

    void run(const Frame& frame) const override {
        for (std::size_t row = 0; row < to_.size; ++row) {
            std::copy_n(frame.at(from_) + row * support_.size(), support_.size(), frame.spare);
            frame.kernels.softmax(frame.spare, support_.size());
            // The same kernel as attention's: its only key is the support.
            frame.kernels.scores(frame.spare, support_.data(), 0, support_.size(), 1.0f, frame.at(to_) + row, 1);
        }
    }

private:
    std::vector<float> support_;
    Place from_;
    Place to_;
};

/// How the steps of one name are made.
struct Maker {
    Needs (*needs)(const Operation&, Sizes);
    std::unique_ptr<const Step> (*make)(const Operation&, Places, Place);
    bool inPlace;  ///< Whether the result may take the place of the first input.
};

template <typename Kind>
Maker makerOf(bool inPlace = false) {
    return {&Kind::needs,
            [](const Operation& operation, Places inputs, Place result) -> std::unique_ptr<const Step> {
                return std::make_unique<Kind>(operation, inputs, result);
            },
            inPlace};
}

/// Null for what is not of the body.
inline const Maker* findMaker(const std::string& name) {
    static const std::map<std::string, Maker> makers{
        {"normalize", makerOf<NormalizeStep>(true)},
        {"linear", makerOf<LinearStep>()},
        {"noisy_linear", makerOf<LinearStep>()},
        {"tanh", makerOf<ActivationStep>(true)},
        {"relu", makerOf<ActivationStep>(true)},
        {"elu", makerOf<ActivationStep>(true)},
        {"gelu", makerOf<ActivationStep>(true)},
        {"silu", makerOf<ActivationStep>(true)},
        {"layer_norm", makerOf<LayerNormStep>(true)},
        {"scale", makerOf<ScaleStep>(true)},
        {"bias", makerOf<BiasStep>(true)},
        {"slice", makerOf<SliceStep>()},
        {"concat", makerOf<ConcatStep>()},
        {"add", makerOf<PairStep>(true)},
        {"multiply", makerOf<PairStep>(true)},
        {"transpose", makerOf<TransposeStep>()},
        {"conv2d", makerOf<Conv2dStep>()},
        {"max_pool", makerOf<MaxPoolStep>()},
        {"join_rows", makerOf<JoinRowsStep>()},
        {"attention", makerOf<AttentionStep>()},
        {"mean_rows", makerOf<MeanRowsStep>()},
        {"gru", makerOf<GruStep>()},
        {"lstm", makerOf<LstmStep>()},
        {"noise", makerOf<NoiseStep>()},
        {"expectation", makerOf<ExpectationStep>()},
    };
    const auto found = makers.find(name);
    return found == makers.end() ? nullptr : &found->second;
}

}  // namespace rl4sys::detail
