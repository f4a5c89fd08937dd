#include "conversation.hpp"

#include <algorithm>
#include <utility>

#include "wire.hpp"

namespace rl4sys::client {

namespace {

/// A message is closed when it has grown to this.
constexpr std::size_t messageBytes = 1 << 20;

/// What a message takes besides its trajectories.
constexpr std::size_t envelopeBytes = 1024;

}  // namespace

void Bell::ring() {
    if (rung_.exchange(true)) return;
    // Whoever is about to wait has not looked yet, or is waiting already.
    { const std::lock_guard lock(mutex_); }
    heard_.notify_one();
}

void Bell::wait(Seconds timeout) {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, timeout, [this] { return rung_.load(); });
    rung_ = false;
}

Conversation::Conversation(std::shared_ptr<Stream> stream, Outbox& outbox, std::size_t sendFrequency, Log log)
    : stream_(std::move(stream)), outbox_(outbox), sendFrequency_(sendFrequency), log_(std::move(log)) {
    outbox_.rewind();
}

void Conversation::accept(const v1::Welcome& welcome) {
    welcomed_ = true;
    lineage_ = welcome.lineage();
    maxMessageBytes_ = welcome.max_message_bytes();
    outbox_.acknowledge(welcome.acknowledged());
    // What was gathered while the server was away has waited long enough.
    hurry_ = outbox_.unsent() > 0;
}

std::uint64_t Conversation::sendWaiting() {
    hurry_ |= outbox_.settle();
    if (outbox_.unsent() > 0 && !waitingSince_) waitingSince_ = Clock::now();
    std::uint64_t steps = 0;
    while (welcomed_ && stream_->ready() && isDue()) {
        const auto parcels = outbox_.batch(std::min(messageBytes, mostBytes()));
        if (parcels.front()->content.size() > mostBytes()) {
            giveUp(*parcels.front());
            continue;
        }
        v1::ClientMessage message;
        for (const Parcel* parcel : parcels) {
            message.mutable_trajectories()->add_trajectory(parcel->content);
            steps += parcel->steps;
        }
        stream_->send(std::move(message));
    }
    if (outbox_.unsent() == 0) {
        hurry_ = false;
        waitingSince_.reset();
    }
    return steps;
}

void Conversation::giveUp(const Parcel& parcel) {
    if (!std::exchange(gaveUp_, true)) {
        log_(LogLevel::error, "a trajectory of " + std::to_string(parcel.content.size()) +
                                  " bytes is more than the server takes, and given up");
    }
    outbox_.giveUp();
}

Seconds Conversation::nextLook() const {
    if (!waitingSince_ || !welcomed_) return longestWait;
    return std::max(Seconds::zero(), Seconds(*waitingSince_ + longestWait - Clock::now()));
}

bool Conversation::isDue() const {
    if (outbox_.unsent() == 0) return false;
    const bool waited = waitingSince_ && Clock::now() - *waitingSince_ >= longestWait;
    return hurry_ || waited || outbox_.unsent() >= sendFrequency_;
}

std::size_t Conversation::mostBytes() const noexcept {
    const auto most = static_cast<std::size_t>(maxMessageBytes);
    const std::size_t limit = maxMessageBytes_ > 0 ? std::min<std::uint64_t>(maxMessageBytes_, most) : most;
    return limit - std::min(limit, envelopeBytes);
}

}  // namespace rl4sys::client
