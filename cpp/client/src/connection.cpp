#include "connection.hpp"

#include <algorithm>
#include <utility>

#include "wire.hpp"

namespace rl4sys::client {

namespace {

/// Target size of a message in bytes.
constexpr std::size_t messageBytes = 1 << 20;

/// Number of bytes reserved for the parts of a message other than its trajectories.
constexpr std::size_t envelopeBytes = 1024;

}  // namespace

void WakeEvent::notify() {
    if (notified_.exchange(true)) return;
    // Take the lock, so that the other thread either waits already or will see the flag before it waits.
    { const std::lock_guard lock(mutex_); }
    condition_.notify_one();
}

void WakeEvent::wait(Seconds timeout) {
    std::unique_lock lock(mutex_);
    condition_.wait_for(lock, timeout, [this] { return notified_.load(); });
    notified_ = false;
}

Connection::Connection(std::shared_ptr<Stream> stream, Outbox& outbox, std::size_t sendFrequency, Log log)
    : stream_(std::move(stream)), outbox_(outbox), sendFrequency_(sendFrequency), log_(std::move(log)) {
    outbox_.rewind();
}

void Connection::onWelcome(const v1::Welcome& welcome) {
    welcomed_ = true;
    lineage_ = welcome.lineage();
    maxMessageBytes_ = welcome.max_message_bytes();
    outbox_.acknowledge(welcome.acknowledged());
    // Trajectories recorded before this connection have waited long enough; send them without delay.
    sendImmediately_ = outbox_.unsentCount() > 0;
}

std::uint64_t Connection::sendWaiting() {
    sendImmediately_ |= outbox_.encodeIncoming();
    if (outbox_.unsentCount() > 0 && !waitingSince_) waitingSince_ = Clock::now();
    std::uint64_t steps = 0;
    while (welcomed_ && stream_->ready() && isDue()) {
        const auto trajectories = outbox_.nextBatch(std::min(messageBytes, maxTrajectoryBytes()));
        if (trajectories.front()->content.size() > maxTrajectoryBytes()) {
            dropOversized(*trajectories.front());
            continue;
        }
        v1::ClientMessage message;
        for (const EncodedTrajectory* trajectory : trajectories) {
            message.mutable_trajectories()->add_trajectory(trajectory->content);
            steps += trajectory->steps;
        }
        stream_->send(std::move(message));
    }
    if (outbox_.unsentCount() == 0) {
        sendImmediately_ = false;
        waitingSince_.reset();
    }
    return steps;
}

void Connection::dropOversized(const EncodedTrajectory& trajectory) {
    if (!std::exchange(warnedOversized_, true)) {
        log_(LogLevel::error, "a trajectory of " + std::to_string(trajectory.content.size()) +
                                  " bytes exceeds the limit of the server and is dropped; the limit is " +
                                  std::to_string(maxTrajectoryBytes()) + " bytes");
    }
    outbox_.dropLast();
}

Seconds Connection::timeUntilDue() const {
    if (!waitingSince_ || !welcomed_) return maxSendDelay;
    return std::max(Seconds::zero(), Seconds(*waitingSince_ + maxSendDelay - Clock::now()));
}

bool Connection::isDue() const {
    if (outbox_.unsentCount() == 0) return false;
    const bool waited = waitingSince_ && Clock::now() - *waitingSince_ >= maxSendDelay;
    return sendImmediately_ || waited || outbox_.unsentCount() >= sendFrequency_;
}

std::size_t Connection::maxTrajectoryBytes() const noexcept {
    const auto most = static_cast<std::size_t>(maxMessageBytes);
    const std::size_t limit = maxMessageBytes_ > 0 ? std::min<std::uint64_t>(maxMessageBytes_, most) : most;
    return limit - std::min(limit, envelopeBytes);
}

}  // namespace rl4sys::client
