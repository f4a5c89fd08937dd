#include "leftover.hpp"

#include <stdexcept>
#include <utility>

namespace rl4sys::client {

namespace {

constexpr std::size_t memoryBytes = 4 << 20;

std::string nothingToEncode(const Shipment&) { throw std::logic_error("a leftover takes in nothing new"); }

}  // namespace

Leftover::Leftover(std::unique_ptr<Spool> spool, OpenStream openStream, Log log)
    : spool_(*spool), outbox_(memoryBytes, std::move(spool), nothingToEncode, log), openStream_(std::move(openStream)),
      log_(std::move(log)) {}

bool Leftover::send(const std::function<bool()>& goesOn) {
    v1::ClientMessage first;
    if (!first.mutable_hello()->ParseFromString(spool_.hello())) {
        setAside("it does not say whose it is");
        return true;
    }
    // No models are wanted, only the acknowledgement.
    first.mutable_hello()->set_remote(true);
    {
        Conversation talk(openStream_([this] { bell_.ring(); }), outbox_, 1, log_);
        talk.stream().send(std::move(first));
        converse(talk, goesOn);
    }
    outbox_.park();
    return refused_ || outbox_.waitingSteps() == 0;
}

void Leftover::converse(Conversation& talk, const std::function<bool()>& goesOn) {
    while (outbox_.waitingSteps() > 0 && goesOn()) {
        bell_.wait(longestWait);
        while (const v1::ServerMessage* message = talk.stream().received()) {
            const bool heard = hear(*message, talk);
            talk.stream().heard();
            if (!heard) return;
        }
        if (talk.stream().ended() || Clock::now() - heardAt_ > welcomeTime) return;
        talk.sendWaiting();
    }
}

bool Leftover::hear(const v1::ServerMessage& message, Conversation& talk) {
    heardAt_ = Clock::now();
    if (message.has_welcome()) {
        talk.accept(message.welcome());
    } else if (message.has_ack()) {
        outbox_.acknowledge(message.ack().sequence());
    } else if (message.has_problem() && message.problem().kind() == v1::Problem::REFUSED) {
        setAside(message.problem().message());
        return false;
    }
    return true;
}

void Leftover::setAside(const std::string& reason) {
    refused_ = true;
    log_(LogLevel::warning, "what an earlier process left is kept in " + spool_.setAside().string() +
                                ", unsent: " + reason);
}

}  // namespace rl4sys::client
