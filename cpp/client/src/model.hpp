#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rl4sys/core/program.hpp"
#include "rl4sys/v1/training.pb.h"
#include "spec.hpp"

namespace rl4sys::client {

/// Value of `stepsToNextUpdate` if the server sends none, for example for a pinned version.
inline constexpr std::uint64_t unlimitedSteps = std::uint64_t{1} << 62;

/// Policy ready for inference, with the metadata sent by the server.
struct Model {
    std::string lineage;
    std::uint64_t version = 0;
    std::uint64_t stepsToNextUpdate = unlimitedSteps;  ///< Number of steps until the next update is due.
    std::uint64_t learnedSequence = 0;        ///< Highest sequence number of this client that was trained on.
    std::shared_ptr<const Program> program;   ///< Null with remote inference.
    std::string content;                      ///< Bytes of the snapshot, the base of the next delta.
    std::string digest;
};

/// Build the model of a Snapshot message. A delta is applied to `held`, the previous model of this client.
/// \throws std::invalid_argument if the model is damaged, has another spec, or is a delta against another model than
///     `held`.
std::shared_ptr<const Model> readModel(const v1::Snapshot& message, const std::string& lineage, const Model* held,
                                       const Spec& spec);

}  // namespace rl4sys::client
