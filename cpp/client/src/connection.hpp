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

/// Time limit for the first message of the server.
inline constexpr Seconds welcomeTimeout{30.0};

/// Event for one waiting thread; several notifications before a wait count as one.
class WakeEvent {
public:
    void notify();

    /// Wait for a notification since the last wait, up to `timeout`.
    void wait(Seconds timeout);

private:
    std::atomic<bool> notified_ = false;
    std::mutex mutex_;
    std::condition_variable condition_;
};

/// State of one stream to the server.
class Connection {
public:
    Connection(std::shared_ptr<Stream> stream, Outbox& outbox, std::size_t sendFrequency, Log log);

    Stream& stream() const noexcept { return *stream_; }
    const std::shared_ptr<Stream>& sharedStream() const noexcept { return stream_; }
    bool welcomed() const noexcept { return welcomed_; }
    const std::string& lineage() const noexcept { return lineage_; }
    Seconds age() const { return Clock::now() - startedAt_; }

    void onWelcome(const v1::Welcome& welcome);

    /// Send all waiting trajectories without waiting for more.
    void sendImmediately() noexcept { sendImmediately_ = true; }

    /// Send due trajectories as long as the stream accepts messages. Returns the number of steps sent.
    std::uint64_t sendWaiting();

    /// Time until a waiting trajectory is due, after which the link must check again without a notification.
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
