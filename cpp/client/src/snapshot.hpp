#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rl4sys/core/program.hpp"
#include "spec.hpp"
#include "tensors.hpp"

namespace rl4sys::client {

/// Policy snapshot for inference: `rl4sys.policy.snapshot.Snapshot` in Python.
struct Snapshot {
    std::int64_t version = 0;
    Spec spec;
    std::shared_ptr<const Program> program;

    /// Read a snapshot. Stricter than the Python reader for inputs the Python writer never produces: weights must be
    /// float32, strings must be strings, and reuse of weights is limited.
    /// \throws std::invalid_argument if `blob` is not a snapshot, is damaged or inconsistent.
    static Snapshot fromBytes(std::string_view blob);
};

/// Return the SHA-256 of the weights and the program text, in hexadecimal. Uses the text as stored in the file, so the
/// result does not depend on number formatting.
std::string contentHash(const Arrays& weights, const std::string& program);

}  // namespace rl4sys::client
