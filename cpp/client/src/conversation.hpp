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

/// Trajectories wait at most so long for others to be sent with; and reports come at most so often.
inline constexpr Seconds longestWait{1.0};

/// How long a server may take to say anything at first.
inline constexpr Seconds welcomeTime{30.0};

/// Wakes one thread that waits, or will: rung several times it wakes it once.
class Bell {
public:
    void ring();

    /// Wait until it was rung since the last time, or time is up.
    void wait(Seconds timeout);

private:
    std::atomic<bool> rung_ = false;
    std::mutex mutex_;
    std::condition_variable heard_;
};

/// The state of one stream: what was welcomed and sent on it.
class Conversation {
public:
    Conversation(std::shared_ptr<Stream> stream, Outbox& outbox, std::size_t sendFrequency, Log log);

    Stream& stream() const noexcept { return *stream_; }
    const std::shared_ptr<Stream>& sharedStream() const noexcept { return stream_; }
    bool welcomed() const noexcept { return welcomed_; }
    const std::string& lineage() const noexcept { return lineage_; }
    Seconds age() const { return Clock::now() - startedAt_; }

    void accept(const v1::Welcome& welcome);

    /// Send what waits, even if more could be waited for.
    void hurry() noexcept { hurry_ = true; }

    /// Send what is due as far as the stream takes it; the number of steps.
    std::uint64_t sendWaiting();

    /// Until something may be due that nobody will wake us for.
    Seconds nextLook() const;

private:
    bool isDue() const;
    std::size_t mostBytes() const noexcept;
    void giveUp(const Parcel& parcel);

    std::shared_ptr<Stream> stream_;
    Outbox& outbox_;
    std::size_t sendFrequency_;
    Log log_;
    bool welcomed_ = false;
    bool hurry_ = false;
    bool gaveUp_ = false;
    std::string lineage_;
    std::uint64_t maxMessageBytes_ = 0;
    Clock::time_point startedAt_ = Clock::now();
    std::optional<Clock::time_point> waitingSince_;
};

}  // namespace rl4sys::client
