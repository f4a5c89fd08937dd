#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rl4sys/program.hpp"
#include "rl4sys/v1/training.pb.h"
#include "spec.hpp"

namespace rl4sys::client {

/// Steps until an update of a learner that says nothing about it, such as one whose old version is pinned.
inline constexpr std::uint64_t endless = std::uint64_t{1} << 62;

/// A policy ready to decide, and what the server said along with it.
struct Model {
    std::string lineage;
    std::uint64_t version = 0;
    std::uint64_t wants = endless;            ///< Steps that make the learner's next update due.
    std::uint64_t taken = 0;                  ///< This client's highest sequence that it had learnt from before.
    std::shared_ptr<const Program> program;   ///< Null where the server decides.
    std::string content;                      ///< The snapshot's bytes, which the next may come as a difference from.
    std::string digest;
};

/// The model in a message.
/// \throws std::invalid_argument if it is damaged, starts from one that is not `held`, or fits another spec.
std::shared_ptr<const Model> readModel(const v1::Snapshot& message, const std::string& lineage, const Model* held,
                                       const Spec& spec);

}  // namespace rl4sys::client
