#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rl4sys/v1/training.pb.h"
#include "shipment.hpp"
#include "spec.hpp"

namespace rl4sys::client {

/// How the observations of a spec lie side by side in a row of numbers, and in the columns of a trajectory.
class Layout {
public:
    explicit Layout(const Spec& spec) : spec_(spec) {}

    /// The bytes of a Trajectory.
    std::string encode(const Shipment& shipment) const;

    /// One observation as the columns of a request to act.
    void writeObservation(std::span<const float> row, std::span<const bool> mask, v1::ActRequest& request) const;

    /// What a step takes in memory, and about that on the wire.
    std::size_t stepBytes() const noexcept;

private:
    const Spec& spec_;
};

}  // namespace rl4sys::client
