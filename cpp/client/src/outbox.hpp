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
#include "shipment.hpp"
#include "spool.hpp"

namespace rl4sys::client {

/// Shipments in a row, linked by themselves, so that nothing here allocates.
class Shipments {
public:
    Shipments() noexcept = default;
    Shipments(const Shipments&) = delete;
    Shipments& operator=(const Shipments&) = delete;
    /// One by one: of a long chain that frees itself each link would take its share of the stack.
    ~Shipments();

    void push(std::unique_ptr<Shipment> shipment) noexcept;
    /// The one that was pushed first; null if there is none.
    std::unique_ptr<Shipment> pop() noexcept;

    std::size_t count() const noexcept { return count_; }
    /// About how many they take.
    std::size_t bytes() const noexcept { return bytes_; }

private:
    std::unique_ptr<Shipment> first_;
    Shipment* last_ = nullptr;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
};

/// What waits to be sent or acknowledged: bounded in memory, then on disk, then the oldest is given up and counted.
///
/// First in, first out. Older trajectories are in memory, newer ones on disk: what is on disk comes back as memory
/// empties, and stays on disk until it is acknowledged. `put`, `spare` and the figures are for any thread, all else is
/// for the link's.
class Outbox {
public:
    /// Called in the link's thread.
    using Encode = std::function<std::string(const Shipment&)>;

    /// What `spool` holds already is sent first.
    Outbox(std::size_t memoryBytes, std::unique_ptr<Spool> spool, Encode encode, Log log);

    /// Take a trajectory in; where the link does not keep up, the oldest that it has not seen is given up.
    ///
    /// Allocates nothing and does not wait for the disk, nor for what the link does.
    void put(std::unique_ptr<Shipment> shipment);

    /// One that was used before, to be used again; null if there is none.
    std::unique_ptr<Shipment> spare();

    /// Encode and store some of what came in; whether the learner's next update waits for any of it.
    bool settle();

    /// Whether there is more to settle.
    bool unsettled();

    /// The next to send, at least one if any waits, together at most so many bytes; valid until something is called
    /// that changes the outbox.
    std::vector<const Parcel*> batch(std::size_t mostBytes);

    /// What was sent on a connection that is gone is to be sent again.
    void rewind() noexcept { sent_ = 0; }

    /// The server has everything up to `sequence`.
    void acknowledge(std::uint64_t sequence);

    /// Drop the last that `batch` gave, because it cannot be sent at all.
    void giveUp();

    /// Put what is in memory on disk, for the next process of this client to send, and let go of the disk. What is put
    /// in after that is dropped.
    void park();

    /// Trajectories to be sent that are in memory.
    std::size_t unsent() const noexcept { return held_.size() - sent_; }

    /// Steps that are neither acknowledged nor given up.
    std::uint64_t waitingSteps() const noexcept;
    std::uint64_t droppedSteps() const noexcept { return dropped_ + spool_->lostSteps(); }
    std::uint64_t acknowledgedSteps() const noexcept { return acknowledged_; }
    std::uint64_t memoryBytes() const noexcept { return memoryBytes_; }
    std::uint64_t spoolBytes() const noexcept { return spool_->bytes(); }

private:
    struct Held {
        Parcel parcel;
        bool onDisk;
    };

    std::unique_ptr<Shipment> nextIncoming();
    void recycle(std::unique_ptr<Shipment> shipment);
    std::optional<std::string> encoded(const Shipment& shipment) const;
    void store(Parcel parcel);
    bool fitsMemory(const Parcel& parcel) const noexcept;
    bool spooled(const Parcel& parcel);
    void warn(const std::error_code& problem);
    void dropOldest();
    std::uint32_t removeOldest();
    void hold(Parcel parcel, bool onDisk);
    void refill();
    std::size_t firstWithRoomOnDisk() const noexcept;
    void writeHeld();

    const std::size_t limit_;
    const std::unique_ptr<Spool> spool_;
    const Encode encode_;
    const Log log_;

    std::mutex mutex_;
    Shipments incoming_;
    Shipments spares_;
    bool parked_ = false;

    std::deque<Held> held_;
    std::size_t sent_ = 0;  ///< So many of those, the oldest, wait for their acknowledgement.
    bool warned_ = false;
    bool unwritable_ = false;

    std::atomic<std::uint64_t> accepted_;
    std::atomic<std::uint64_t> acknowledged_ = 0;
    std::atomic<std::uint64_t> dropped_ = 0;
    std::atomic<std::uint64_t> memoryBytes_ = 0;
};

}  // namespace rl4sys::client
