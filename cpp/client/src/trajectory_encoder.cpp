#include "trajectory_encoder.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace rl4sys::client {

namespace {

static_assert(std::endian::native == std::endian::little, "columns are copied to the wire without byte swapping");

using Shape = std::vector<std::size_t>;

template <typename T>
void copyBytes(std::span<const T> values, std::string& bytes) {
    bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void describe(v1::Column& column, const std::string& name, v1::DType dtype, std::size_t rows, const Shape& shape) {
    column.set_name(name);
    column.set_dtype(dtype);
    column.add_shape(rows);
    for (const std::size_t length : shape) column.add_shape(length);
}

/// Convert to the nearest value of type T.
template <typename T>
T converted(float value) noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return value;
    } else if constexpr (std::is_same_v<T, bool>) {
        return value != 0.0f;
    } else {
        // Compare as floats: the maximum rounded to float may exceed the range of T.
        if (value <= static_cast<float>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
        if (value >= static_cast<float>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
        return static_cast<T>(value);
    }
}

/// Copy `size` elements of each row, starting at element `first`, converted to type T.
template <typename T>
void copyPart(std::span<const float> rows, std::size_t width, std::size_t first, std::size_t size,
              std::string& bytes) {
    const std::size_t count = rows.size() / width;
    bytes.resize(count * size * sizeof(T));
    char* to = bytes.data();
    for (std::size_t row = 0; row < count; ++row) {
        for (const float value : rows.subspan(row * width + first, size)) {
            const T number = converted<T>(value);
            std::memcpy(to, &number, sizeof(T));
            to += sizeof(T);
        }
    }
}

using CopyPart = void (*)(std::span<const float>, std::size_t, std::size_t, std::size_t, std::string&);

struct Type {
    v1::DType dtype;
    CopyPart copy;
};

const Type& typeOf(const std::string& name) {
    static const std::map<std::string, Type> types{
        {"float32", {v1::DTYPE_FLOAT32, &copyPart<float>}},
        {"int64", {v1::DTYPE_INT64, &copyPart<std::int64_t>}},
        {"bool", {v1::DTYPE_BOOL, &copyPart<bool>}},
        {"uint8", {v1::DTYPE_UINT8, &copyPart<std::uint8_t>}},
        {"int8", {v1::DTYPE_INT8, &copyPart<std::int8_t>}},
        {"int16", {v1::DTYPE_INT16, &copyPart<std::int16_t>}},
        {"int32", {v1::DTYPE_INT32, &copyPart<std::int32_t>}},
        {"uint16", {v1::DTYPE_UINT16, &copyPart<std::uint16_t>}},
        {"uint32", {v1::DTYPE_UINT32, &copyPart<std::uint32_t>}}};
    const auto found = types.find(name);
    if (found == types.end()) throw std::invalid_argument("observations of dtype '" + name + "' cannot be sent");
    return found->second;
}

using Columns = google::protobuf::RepeatedPtrField<v1::Column>;

void addObservations(const Spec& spec, std::span<const float> rows, std::span<const bool> mask, Columns& columns) {
    const std::size_t width = spec.inputSize();
    const std::size_t count = rows.size() / width;
    std::size_t first = 0;
    for (const auto& [name, box] : spec.observation) {
        v1::Column& column = *columns.Add();
        if (name == maskName) {
            describe(column, "obs." + name, v1::DTYPE_BOOL, count, {spec.actionCount});
            copyBytes(mask, *column.mutable_values());
            continue;
        }
        const Type& type = typeOf(box.dtype);
        describe(column, "obs." + name, type.dtype, count, box.shape);
        if (type.dtype == v1::DTYPE_FLOAT32 && box.size() == width) {
            copyBytes(rows, *column.mutable_values());
        } else {
            type.copy(rows, width, first, box.size(), *column.mutable_values());
        }
        first += box.size();
    }
}

template <typename T>
void addColumn(const std::string& name, v1::DType dtype, std::span<const T> values, std::size_t rows,
               const Shape& shape, Columns& columns) {
    v1::Column& column = *columns.Add();
    describe(column, name, dtype, rows, shape);
    copyBytes(values, *column.mutable_values());
}

}  // namespace

std::string TrajectoryEncoder::encode(const Recording& recording) const {
    const RecordingView& view = recording.columns;
    const std::size_t steps = recording.steps();
    v1::Trajectory message;
    message.set_sequence(recording.sequence);
    message.set_version(recording.version);
    message.set_episode(recording.episode);
    message.set_offset(recording.offset);
    message.set_terminated(recording.terminated);
    message.set_truncated(recording.truncated);
    Columns& columns = *message.mutable_columns();
    addObservations(spec_, view.row, view.mask, columns);
    if (spec_.actionCount > 0) {
        const Shape shape = spec_.multiDiscrete.empty() ? Shape() : Shape{spec_.multiDiscrete.size()};
        addColumn("action", v1::DTYPE_INT64, view.discreteAction, steps, shape, columns);
    } else {
        addColumn("action", v1::DTYPE_FLOAT32, view.boxAction, steps, spec_.action.shape, columns);
    }
    addColumn("reward", v1::DTYPE_FLOAT32, view.reward, steps, {}, columns);
    addColumn("log_prob", v1::DTYPE_FLOAT32, view.logProb, steps, {}, columns);
    if (!view.memory.empty()) {
        addColumn("memory", v1::DTYPE_FLOAT32, view.memory, 1, {view.memory.size()}, columns);
    }
    return message.SerializeAsString();
}

void TrajectoryEncoder::writeObservation(std::span<const float> row, std::span<const bool> mask,
                                         v1::ActRequest& request) const {
    // If no mask is given, all actions are legal.
    std::string all(spec_.masked() && mask.empty() ? spec_.actionCount : 0, '\1');
    const std::span<const bool> allLegal(reinterpret_cast<const bool*>(all.data()), all.size());
    addObservations(spec_, row, mask.empty() ? allLegal : mask, *request.mutable_observation());
}

std::size_t TrajectoryEncoder::stepBytes() const noexcept {
    return 4 * spec_.inputSize() + (spec_.masked() ? spec_.actionCount : 0) + 8 * spec_.actionSize() + 8;
}

}  // namespace rl4sys::client
