#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rl4sys/core/recorder.hpp"

namespace rl4sys::client {

/// Recorded steps between two cuts, passed from a host thread to the link's thread together with their storage.
///
/// Node of an intrusive list, so that queues allocate nothing. The object is reused after encoding.
struct Recording {
    std::unique_ptr<Recording> next;
    Recorder::Storage storage;
    RecordingView columns;  ///< Views of `storage`.
    std::uint64_t sequence = 0;
    std::uint64_t version = 0;
    std::uint64_t episode = 0;
    std::uint64_t offset = 0;
    bool terminated = false;
    bool truncated = false;
    bool urgent = false;    ///< True if the learner's next update needs this recording.
    std::size_t bytes = 0;  ///< Approximate RAM usage in bytes.

    std::size_t steps() const noexcept { return columns.reward.size(); }
};

}  // namespace rl4sys::client
