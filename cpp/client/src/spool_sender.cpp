#include "spool_sender.hpp"

#include <stdexcept>
#include <utility>

namespace rl4sys::client {

namespace {

constexpr std::size_t memoryBytes = 4 << 20;

std::string rejectRecording(const Recording&) { throw std::logic_error("an abandoned spool accepts no recordings"); }

}  // namespace

SpoolSender::SpoolSender(std::unique_ptr<Spool> spool, const OpenStream& openStream, std::function<void()> wake,
                         Log log)
    : spool_(*spool), outbox_(memoryBytes, std::move(spool), rejectRecording, log), log_(std::move(log)) {
    v1::ClientMessage first;
    if (!first.mutable_hello()->ParseFromString(spool_.hello())) {
        markRefused("its Hello message cannot be parsed");
        return;
    }
    // Connect as a client with remote inference: the server then sends acknowledgements, but no models.
    first.mutable_hello()->set_remote(true);
    connection_ = std::make_unique<Connection>(openStream(std::move(wake)), outbox_, 1, log_);
    connection_->stream().send(std::move(first));
}

SpoolSender::~SpoolSender() {
    connection_.reset();
    try {
        outbox_.persist();
    } catch (const std::exception&) {
        // Without memory, trajectories cannot be written; those already on disk are sent by the next process.
    }
}

SpoolSender::Progress SpoolSender::advance() {
    while (!refused_ && connection_->stream().received() != nullptr) {
        if (!onMessage(*connection_->stream().received())) break;
        connection_->stream().consume();
    }
    if (refused_ || outbox_.waitingSteps() == 0) return Progress::done;
    if (connection_->stream().ended()) return Progress::lost;
    if (Clock::now() - lastMessageAt_ > welcomeTimeout) {
        if (!connection_->welcomed()) return Progress::lost;
        markRefused("the server did not acknowledge its trajectories in time");
        return Progress::done;
    }
    connection_->sendWaiting();
    return Progress::sending;
}

bool SpoolSender::onMessage(const v1::ServerMessage& message) {
    if (message.has_welcome()) {
        lastMessageAt_ = Clock::now();
        connection_->onWelcome(message.welcome());
    } else if (message.has_ack()) {
        lastMessageAt_ = Clock::now();
        outbox_.acknowledge(message.ack().sequence());
    } else if (message.has_problem() && message.problem().kind() == v1::Problem::REFUSED) {
        markRefused(message.problem().message());
    }
    return !refused_;
}

void SpoolSender::markRefused(const std::string& reason) {
    refused_ = true;
    const std::string directory = spool_.markRefused().string();
    log_(LogLevel::warning, "the spool of an earlier process was not sent and is kept in " + directory + ": " + reason);
}

}  // namespace rl4sys::client
