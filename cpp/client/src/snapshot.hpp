#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rl4sys/core/program.hpp"
#include "spec.hpp"
#include "tensors.hpp"

namespace rl4sys::client {

/// Policy snapshot for inference. The Python class is `rl4sys.policy.snapshot.Snapshot`.
struct Snapshot {
    std::int64_t version = 0;
    Spec spec;
    std::shared_ptr<const Program> program;

    /// Read a snapshot. Stricter than the Python reader: all weights must be float32, names must be JSON strings, and
    /// reuse of weights is limited. The Python writer complies with these rules.
    /// \throws std::invalid_argument if `blob` is not a snapshot, is damaged or is inconsistent.
    static Snapshot fromBytes(std::string_view blob);
};

/// Return the SHA-256 of the weights and the program text, in hexadecimal. `program` is the text as stored in the file,
/// so that the result does not depend on number formatting.
std::string contentHash(const Arrays& weights, const std::string& program);

}  // namespace rl4sys::client
