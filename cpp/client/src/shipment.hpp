#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rl4sys/recorder.hpp"

namespace rl4sys::client {

/// A fragment on its way from the decision path to the link, in the storage it was recorded in.
///
/// Linked to the next by itself, so that handing it over allocates nothing; used again once it is encoded.
struct Shipment {
    std::unique_ptr<Shipment> next;
    Recorder::Storage storage;
    Fragment fragment;  ///< Views of `storage`.
    std::uint64_t sequence = 0;
    std::uint64_t version = 0;
    std::uint64_t episode = 0;
    std::uint64_t offset = 0;
    bool terminated = false;
    bool truncated = false;
    bool urgent = false;    ///< The learner's next update waits for it.
    std::size_t bytes = 0;  ///< About how many it takes.

    std::size_t steps() const noexcept { return fragment.reward.size(); }
};

}  // namespace rl4sys::client
