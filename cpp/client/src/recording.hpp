#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rl4sys/core/recorder.hpp"

namespace rl4sys::client {

/// Recorded steps between two cuts, on the way from the decision path to the link, in the storage of the recorder.
///
/// An intrusive list node, so a handover allocates nothing. Reused after encoding.
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
