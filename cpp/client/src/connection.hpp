#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "log.hpp"
#include "outbox.hpp"
#include "stream.hpp"

namespace rl4sys::client {

using Clock = std::chrono::steady_clock;

/// Maximum time that a trajectory waits to share a message with later ones, and minimum interval between reports.
inline constexpr Seconds maxSendDelay{1.0};

/// Maximum time to wait for the Welcome message of the server.
inline constexpr Seconds welcomeTimeout{30.0};

/// Event for one waiting thread. Several notifications before a wait are merged into one.
class WakeEvent {
public:
    void notify();

    /// Wait up to `timeout` for a notification. Returns immediately if there was one since the last wait.
    void wait(Seconds timeout);

private:
    std::atomic<bool> notified_ = false;
    std::mutex mutex_;
    std::condition_variable condition_;
};

/// One stream to the server, with its Welcome message. Selects the trajectories to send on this stream.
class Connection {
public:
    Connection(std::shared_ptr<Stream> stream, Outbox& outbox, std::size_t sendFrequency, Log log);

    Stream& stream() const noexcept { return *stream_; }
    const std::shared_ptr<Stream>& sharedStream() const noexcept { return stream_; }
    bool welcomed() const noexcept { return welcomed_; }
    const std::string& lineage() const noexcept { return lineage_; }
    Seconds age() const { return Clock::now() - startedAt_; }

    void onWelcome(const v1::Welcome& welcome);

    /// Make the next `sendWaiting` send all waiting trajectories, without waiting for more of them.
    void sendImmediately() noexcept { sendImmediately_ = true; }

    /// Send due trajectories as long as the stream accepts messages. Returns the number of steps sent.
    std::uint64_t sendWaiting();

    /// Return the time after which `sendWaiting` must be called again, even without a notification.
    Seconds timeUntilDue() const;

private:
    bool isDue() const;
    std::size_t maxTrajectoryBytes() const noexcept;
    void dropOversized(const EncodedTrajectory& trajectory);

    std::shared_ptr<Stream> stream_;
    Outbox& outbox_;
    std::size_t sendFrequency_;
    Log log_;
    bool welcomed_ = false;
    bool sendImmediately_ = false;
    bool warnedOversized_ = false;
    std::string lineage_;
    std::uint64_t maxMessageBytes_ = 0;
    Clock::time_point startedAt_ = Clock::now();
    std::optional<Clock::time_point> waitingSince_;
};

}  // namespace rl4sys::client
