#include "link.hpp"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace rl4sys::client {

namespace {

constexpr Seconds firstDelay{0.1};
constexpr Seconds maxDelay{5.0};
constexpr Seconds refusedDelay{30.0};
constexpr Seconds reachTimeout{1.0};
/// A connection of at least this duration resets the retry delay.
constexpr Seconds steadyTime{1.0};
constexpr std::size_t maxErrorLength = 4000;
constexpr std::size_t maxLoggedErrors = 100;

bool differ(const v1::Report& a, const v1::Report& b) { return a.SerializeAsString() != b.SerializeAsString(); }

}  // namespace

Link::Link(ClientIdentity identity, OpenStream openStream, Outbox& outbox, Pace& pace, std::size_t sendFrequency,
           Log log)
    : identity_(std::move(identity)), openStream_(std::move(openStream)), outbox_(outbox), pace_(pace),
      sendFrequency_(sendFrequency), log_(std::move(log)), jitter_(identity_.hello.instance()) {}

Link::~Link() { close(); }

void Link::start() {
    // Start the thread with all signals blocked: the host handles signals, and a SIGXFSZ on this thread would end the
    // process.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Link::waitUntilAnswered(Seconds timeout, bool model) {
    const Clock::time_point startedAt = Clock::now();
    pace_.waitFor(timeout, [&] {
        const bool served = model ? pace_.hasModel() : connected();
        const bool unreachable = failures_ > 0 && Clock::now() - startedAt >= reachTimeout;
        return served || unreachable || !refusal().empty();
    });
}

bool Link::flush(Seconds timeout) {
    flushing_ = true;
    wake();
    return pace_.waitFor(timeout, [this] { return outbox_.waitingSteps() == 0; });
}

std::string Link::act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) {
    std::shared_ptr<Stream> stream;
    {
        const std::lock_guard lock(mutex_);
        if (connected_) stream = stream_;
    }
    if (!stream) return "not connected to the server";
    return stream->act(request, timeout, reply);
}

void Link::close() {
    stopping_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
}

std::string Link::lastProblem() const {
    const std::lock_guard lock(mutex_);
    return lastProblem_;
}

std::string Link::refusal() const {
    const std::lock_guard lock(mutex_);
    return refusal_;
}

void Link::run() {
    while (!stopping_) {
        runGuarded([this] { runConnection(); });
        runGuarded([this] { disconnect(); });
        runGuarded([this] { waitBeforeRetry(retryDelay()); });
    }
    runGuarded([this] { outbox_.persist(); });
    pace_.notifyWaiters();
}

/// Run a part of the loop and catch all exceptions: a bug or lack of memory must not end the link's thread.
void Link::runGuarded(const std::function<void()>& part) noexcept {
    try {
        part();
    } catch (const std::exception& problem) {
        try {
            reportError(std::string("the link to the server failed and is restarted: ") + problem.what(),
                        LogLevel::error);
        } catch (const std::exception&) {
            // There is not enough memory for a log message. The loop continues and retries the work.
        }
    }
}

void Link::runConnection() {
    if (stopping_) return;
    connection_ = std::make_unique<Connection>(openStream_([this] { wake(); }), outbox_, sendFrequency_, log_);
    {
        const std::lock_guard lock(mutex_);
        stream_ = connection_->sharedStream();
    }
    v1::ClientMessage first;
    *first.mutable_hello() = hello();
    connection_->stream().send(std::move(first));
    while (!stopping_) {
        wakeEvent_.wait(outbox_.hasIncoming() ? Seconds::zero() : connection_->timeUntilDue());
        if (!handleMessages(*connection_)) return;
        sendDue(*connection_);
        sendAbandonedSpools(*connection_);
    }
}

void Link::disconnect() {
    const bool steady = connection_ && connection_->welcomed() && connection_->age() >= steadyTime;
    failures_ = steady ? 0 : failures_ + 1;
    {
        const std::lock_guard lock(mutex_);
        stream_.reset();
    }
    spoolSender_.reset();
    connection_.reset();
    setConnected(false);
}

/// Process received messages. Returns false if the connection has ended or must be closed.
bool Link::handleMessages(Connection& connection) {
    while (const v1::ServerMessage* message = connection.stream().received()) {
        const bool stays = onMessage(*message, connection);
        connection.stream().consume();
        if (!stays) return false;
    }
    if (const std::optional<StreamEnd> end = connection.stream().ended()) {
        onStreamEnd(*end, connection);
        return false;
    }
    return connection.welcomed() || connection.age() < welcomeTimeout;
}

bool Link::onMessage(const v1::ServerMessage& message, Connection& connection) {
    switch (message.kind_case()) {
        case v1::ServerMessage::kWelcome:
            onWelcome(message.welcome(), connection);
            return true;
        case v1::ServerMessage::kAck:
            outbox_.acknowledge(message.ack().sequence());
            pace_.notifyWaiters();
            return true;
        case v1::ServerMessage::kSnapshot:
            return !connection.welcomed() || identity_.hello.remote() ||
                   onSnapshot(message.snapshot(), connection.lineage());
        case v1::ServerMessage::kProblem:
            return onProblem(message.problem());
        default:
            return true;
    }
}

void Link::onWelcome(const v1::Welcome& welcome, Connection& connection) {
    connection.onWelcome(welcome);
    abandonedSpools_ = spoolDirectories(identity_.spools);
    std::ranges::reverse(abandonedSpools_);
    {
        const std::lock_guard lock(mutex_);
        refusal_.clear();
    }
    reported_.reset();
    const auto staleness = welcome.has_max_staleness() ? std::optional(welcome.max_staleness()) : std::nullopt;
    pace_.setServerLimits(staleness, welcome.max_trajectory_steps());
    setConnected(true);
    log_(LogLevel::debug, "welcomed by rl4sys " + welcome.release() + ", lineage " + welcome.lineage());
}

/// Build and publish a model. Returns false if it is invalid; the next connection then requests the full model.
bool Link::onSnapshot(const v1::Snapshot& message, const std::string& lineage) {
    const bool newer = !heldModel_ || heldModel_->lineage != lineage || message.version() > heldModel_->version;
    if (!newer && !identity_.hello.has_pinned_version()) return true;
    try {
        heldModel_ = readModel(message, lineage, heldModel_.get(), identity_.spec);
    } catch (const std::invalid_argument& problem) {
        reportError(std::string("the received model is invalid: ") + problem.what(), LogLevel::warning);
        requestFullModel_ = true;
        return false;
    }
    requestFullModel_ = false;
    pace_.publish(heldModel_);
    log_(LogLevel::debug, "received model version " + std::to_string(heldModel_->version));
    return true;
}

void Link::sendDue(Connection& connection) {
    if (!connection.welcomed()) {
        outbox_.encodeIncoming();
        return;
    }
    warnIfDropping();
    if (outbox_.waitingSteps() == 0) flushing_ = false;
    if (flushing_) connection.sendImmediately();
    stepsSent_ += connection.sendWaiting();
    sendReport(connection);
}

/// Send a report: immediately when a new model is in use, otherwise at most once per second and only if its content has
/// changed.
void Link::sendReport(Connection& connection) {
    const DecisionStatistics decisions = pace_.statistics();
    const std::uint64_t version = decisions.adoptedVersion.value_or(0);
    const bool adopted = !reported_ || reported_->adopted_version() != version;
    if (!connection.stream().ready() || (!adopted && Clock::now() - reportedAt_ < maxSendDelay)) return;
    v1::Report report;
    report.set_adopted_version(version);
    report.set_decisions(decisions.decisions);
    report.set_fallback_decisions(decisions.fallbackDecisions);
    report.set_dropped_steps(outbox_.droppedSteps());
    report.set_late_rewards(decisions.lateRewards);
    report.set_outbox_bytes(outbox_.memoryBytes());
    report.set_spool_bytes(outbox_.spoolBytes());
    if (reported_ && !differ(report, *reported_)) return;
    reported_ = report;
    reportedAt_ = Clock::now();
    v1::ClientMessage message;
    *message.mutable_report() = std::move(report);
    connection.stream().send(std::move(message));
}

v1::Hello Link::hello() const {
    v1::Hello hello = identity_.hello;
    if (heldModel_ && !requestFullModel_) {
        hello.mutable_held()->set_lineage(heldModel_->lineage);
        hello.mutable_held()->set_version(heldModel_->version);
        hello.mutable_held()->set_digest(heldModel_->digest);
    }
    return hello;
}

bool Link::onProblem(const v1::Problem& problem) {
    if (problem.kind() == v1::Problem::REFUSED) {
        setRefusal("the server refused this client: " + problem.message());
        return false;
    }
    if (problem.kind() == v1::Problem::TRAJECTORY_REFUSED) ++trajectoriesRefused_;
    reportError(problem.message(), LogLevel::warning);
    return true;
}

void Link::onStreamEnd(const StreamEnd& end, const Connection& connection) {
    if (stopping_ || !refusal().empty()) return;
    const std::string& text = end.message;
    if (end.kind == StreamEnd::Kind::unauthenticated) {
        setRefusal("the server refused this client: " + text + "; check server.token");
    } else if (end.kind == StreamEnd::Kind::denied) {
        setRefusal("the server refused this client: " + text + "; check server.token and policy_id");
    } else {
        setLastProblem(text);
        const LogLevel level = connection.welcomed() ? LogLevel::warning : LogLevel::debug;
        log_(level, "the connection to the server ended: " + text);
    }
}

void Link::setRefusal(const std::string& text) {
    reportError(text, LogLevel::error);
    {
        const std::lock_guard lock(mutex_);
        refusal_ = text.substr(0, maxErrorLength);
    }
    pace_.notifyWaiters();
}

/// Store an error message as the last problem and log it the first time.
void Link::reportError(const std::string& text, LogLevel level) {
    const std::string cut = text.substr(0, maxErrorLength);
    setLastProblem(cut);
    if (loggedErrors_.size() < maxLoggedErrors && loggedErrors_.insert(cut).second) log_(level, cut);
}

void Link::setLastProblem(const std::string& text) {
    const std::lock_guard lock(mutex_);
    lastProblem_ = text.substr(0, maxErrorLength);
}

void Link::setConnected(bool connected) {
    connected_ = connected;
    pace_.notifyWaiters();
}

void Link::warnIfDropping() {
    if (outbox_.droppedSteps() == 0 || std::exchange(warnedDropping_, true)) return;
    log_(LogLevel::warning, "dropping the oldest steps: outbox and spool are full because the server is unreachable "
                            "or too slow. Further dropped steps are counted but not logged");
}

/// Return the delay before the next attempt: exponential backoff with full jitter, so that the clients of a failed
/// server do not reconnect all at once.
Seconds Link::retryDelay() {
    if (!refusal().empty()) return refusedDelay;
    const std::uint32_t doublings = std::min<std::uint32_t>(failures_ > 0 ? failures_ - 1 : 0, 10);
    const Seconds ceiling = std::min(maxDelay, firstDelay * static_cast<double>(1u << doublings));
    return ceiling * std::uniform_real_distribution<double>()(jitter_);
}

/// Wait before the next attempt and encode recordings in the meantime.
void Link::waitBeforeRetry(Seconds seconds) {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
    while (!stopping_ && Clock::now() < until) {
        wakeEvent_.wait(outbox_.hasIncoming() ? Seconds::zero() : Seconds(until - Clock::now()));
        outbox_.encodeIncoming();
        warnIfDropping();
    }
}

/// Send the spools of terminated instances of this client one by one, each on its own stream with the Hello of its
/// instance. Starts only after the current instance has received a model.
void Link::sendAbandonedSpools(const Connection& connection) {
    if (!connection.welcomed() || (!identity_.hello.remote() && !pace_.hasModel())) return;
    while (!spoolSender_ && !abandonedSpools_.empty()) {
        const std::filesystem::path directory = std::move(abandonedSpools_.back());
        abandonedSpools_.pop_back();
        std::unique_ptr<Spool> spool = Spool::openAbandoned(directory);
        if (!spool) continue;
        log_(LogLevel::debug, "sending the spool of an earlier process of this client: " + directory.string());
        spoolSender_ = std::make_unique<SpoolSender>(std::move(spool), openStream_, [this] { wake(); }, log_);
    }
    if (!spoolSender_ || spoolSender_->advance() == SpoolSender::Progress::sending) return;
    spoolSender_.reset();
    // Wake this thread again, so that it checks for another spool.
    wake();
}

}  // namespace rl4sys::client
