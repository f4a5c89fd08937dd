#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rl4sys/program.hpp"
#include "spec.hpp"
#include "tensors.hpp"

namespace rl4sys::client {

/// A policy frozen for inference, ready to act: `rl4sys.policy.snapshot.Snapshot` in Python.
struct Snapshot {
    std::int64_t version = 0;
    Spec spec;
    std::shared_ptr<const Program> program;

    /// Stricter than Python's reader about what Python's writer never writes: weights of a program are float32, a number
    /// is no text, and weights are not taken over and over.
    /// \throws std::invalid_argument if `blob` is not a snapshot, is damaged or does not fit together.
    static Snapshot fromBytes(std::string_view blob);
};

/// SHA-256 of the weights and the program's text, in hexadecimal digits. The text is taken as it stands in the file,
/// which is how Python wrote it, so that no other way of writing numbers can make it differ.
std::string contentHash(const Arrays& weights, const std::string& program);

}  // namespace rl4sys::client
