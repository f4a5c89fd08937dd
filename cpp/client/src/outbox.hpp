#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "log.hpp"
#include "recording.hpp"
#include "spool.hpp"

namespace rl4sys::client {

/// Intrusive FIFO queue of recordings; push and pop allocate nothing.
class RecordingQueue {
public:
    RecordingQueue() noexcept = default;
    RecordingQueue(const RecordingQueue&) = delete;
    RecordingQueue& operator=(const RecordingQueue&) = delete;
    /// Frees the recordings one by one; a recursive list destructor could overflow the stack.
    ~RecordingQueue();

    void push(std::unique_ptr<Recording> recording) noexcept;
    /// Remove and return the oldest recording; null if the queue is empty.
    std::unique_ptr<Recording> pop() noexcept;

    std::size_t count() const noexcept { return count_; }
    /// Approximate RAM usage in bytes.
    std::size_t bytes() const noexcept { return bytes_; }

private:
    std::unique_ptr<Recording> first_;
    Recording* last_ = nullptr;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
};

/// FIFO queue of trajectories that the server has not acknowledged. If the memory limit is reached, trajectories are
/// written to disk; if the disk limit is reached too, the oldest trajectories are dropped.
///
/// The oldest trajectories are in memory, newer ones on disk. When memory has room again, trajectories are read from
/// disk; their files are kept until the server has acknowledged them. `put`, `takeSpare` and the counters are
/// thread-safe; all other methods are called by the link's thread only.
class Outbox {
public:
    /// Function that encodes a recording as a trajectory message. Called on the link's thread.
    using Encode = std::function<std::string(const Recording&)>;

    /// \param spool spool for the trajectories on disk; trajectories that it already contains are sent first.
    Outbox(std::size_t memoryBytes, std::unique_ptr<Spool> spool, Encode encode, Log log);

    /// Queue a recording for encoding. If the queue exceeds its limit, the oldest queued recordings are dropped.
    ///
    /// Allocates nothing and waits neither for the disk nor for the link.
    void put(std::unique_ptr<Recording> recording);

    /// Return an encoded recording for reuse of its buffers; null if there is none.
    std::unique_ptr<Recording> takeSpare();

    /// Encode and store queued recordings, up to a fixed number per call. Returns true if one of them is urgent.
    bool encodeIncoming();

    /// True if recordings wait for `encodeIncoming`.
    bool hasIncoming();

    /// Return the next trajectories to send, at most `maxBytes` in total, but at least one if there is one. The
    /// pointers are valid until the outbox changes.
    std::vector<const EncodedTrajectory*> nextBatch(std::size_t maxBytes);

    /// Mark all unacknowledged trajectories as unsent, for a new connection.
    void rewind() noexcept { sent_ = 0; }

    /// Remove all trajectories up to sequence number `sequence`, because the server has acknowledged them.
    void acknowledge(std::uint64_t sequence);

    /// Drop the last trajectory of the latest batch, because it cannot be sent.
    void dropLast();

    /// Write the trajectories in memory to disk for the next client instance and release the spool. Later recordings
    /// are dropped.
    void persist();

    /// Number of trajectories in memory that were not sent yet.
    std::size_t unsentCount() const noexcept { return stored_.size() - sent_; }

    /// Number of steps neither acknowledged nor dropped.
    std::uint64_t waitingSteps() const noexcept;
    std::uint64_t droppedSteps() const noexcept { return dropped_ + spool_->lostSteps(); }
    std::uint64_t acknowledgedSteps() const noexcept { return acknowledged_; }
    std::uint64_t memoryBytes() const noexcept { return memoryBytes_; }
    std::uint64_t spoolBytes() const noexcept { return spool_->bytes(); }

private:
    struct Slot {
        EncodedTrajectory trajectory;
        bool onDisk;
    };

    std::unique_ptr<Recording> nextIncoming();
    void recycle(std::unique_ptr<Recording> recording);
    std::optional<std::string> tryEncode(const Recording& recording) const;
    void store(EncodedTrajectory trajectory);
    bool fitsInMemory(const EncodedTrajectory& trajectory) const noexcept;
    bool trySpool(const EncodedTrajectory& trajectory);
    void warnUnwritable(const std::error_code& problem);
    void dropOldest();
    std::uint32_t removeOldest();
    void addToMemory(EncodedTrajectory trajectory, bool onDisk);
    void refillFromDisk();
    std::size_t firstThatFitsOnDisk() const noexcept;
    void writeToDisk();

    const std::size_t limit_;
    const std::unique_ptr<Spool> spool_;
    const Encode encode_;
    const Log log_;

    std::mutex mutex_;
    RecordingQueue incoming_;
    RecordingQueue spares_;
    bool persisted_ = false;

    std::deque<Slot> stored_;
    std::size_t sent_ = 0;  ///< Number of leading trajectories that were sent and wait for an acknowledgement.
    bool warnedUnwritable_ = false;
    bool unwritable_ = false;

    std::atomic<std::uint64_t> accepted_;
    std::atomic<std::uint64_t> acknowledged_ = 0;
    std::atomic<std::uint64_t> dropped_ = 0;
    std::atomic<std::uint64_t> memoryBytes_ = 0;
};

}  // namespace rl4sys::client
