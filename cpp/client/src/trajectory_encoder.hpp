#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rl4sys/v1/training.pb.h"
#include "recording.hpp"
#include "spec.hpp"

namespace rl4sys::client {

/// Encodes recordings and observations as protobuf columns. Each input row contains all observations of the spec,
/// concatenated; each observation becomes a column.
class TrajectoryEncoder {
public:
    explicit TrajectoryEncoder(const Spec& spec) : spec_(spec) {}

    /// Serialize a recording as a Trajectory message.
    std::string encode(const Recording& recording) const;

    /// Write one observation as columns of a request.
    void writeObservation(std::span<const float> row, std::span<const bool> mask, v1::ActRequest& request) const;

    /// Approximate size of one step in bytes, in RAM and in messages.
    std::size_t stepBytes() const noexcept;

private:
    const Spec& spec_;
};

}  // namespace rl4sys::client
