#include "leftover.hpp"

#include <stdexcept>
#include <utility>

namespace rl4sys::client {

namespace {

constexpr std::size_t memoryBytes = 4 << 20;

std::string nothingToEncode(const Shipment&) { throw std::logic_error("a leftover takes in nothing new"); }

}  // namespace

Leftover::Leftover(std::unique_ptr<Spool> spool, const OpenStream& openStream, std::function<void()> wake, Log log)
    : spool_(*spool), outbox_(memoryBytes, std::move(spool), nothingToEncode, log), log_(std::move(log)) {
    v1::ClientMessage first;
    if (!first.mutable_hello()->ParseFromString(spool_.hello())) {
        setAside("it does not say whose it is");
        return;
    }
    // No models are wanted, only the acknowledgement.
    first.mutable_hello()->set_remote(true);
    talk_ = std::make_unique<Conversation>(openStream(std::move(wake)), outbox_, 1, log_);
    talk_->stream().send(std::move(first));
}

Leftover::~Leftover() {
    talk_.reset();
    try {
        outbox_.park();
    } catch (const std::exception&) {
        // A lack of memory: what is on disk already stays there for the next process.
    }
}

Leftover::Progress Leftover::advance() {
    while (!refused_ && talk_->stream().received() != nullptr) {
        if (!hear(*talk_->stream().received())) break;
        talk_->stream().heard();
    }
    if (refused_ || outbox_.waitingSteps() == 0) return Progress::over;
    if (talk_->stream().ended()) return Progress::lost;
    if (Clock::now() - heardAt_ > welcomeTime) {
        if (!talk_->welcomed()) return Progress::lost;
        setAside("the server neither takes nor refuses it");
        return Progress::over;
    }
    talk_->sendWaiting();
    return Progress::underWay;
}

bool Leftover::hear(const v1::ServerMessage& message) {
    if (message.has_welcome()) {
        heardAt_ = Clock::now();
        talk_->accept(message.welcome());
    } else if (message.has_ack()) {
        heardAt_ = Clock::now();
        outbox_.acknowledge(message.ack().sequence());
    } else if (message.has_problem() && message.problem().kind() == v1::Problem::REFUSED) {
        setAside(message.problem().message());
    }
    return !refused_;
}

void Leftover::setAside(const std::string& reason) {
    refused_ = true;
    log_(LogLevel::warning, "what an earlier process left is kept in " + spool_.setAside().string() +
                                ", unsent: " + reason);
}

}  // namespace rl4sys::client
