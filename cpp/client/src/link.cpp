#include "link.hpp"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace rl4sys::client {

namespace {

constexpr Seconds firstDelay{0.1};
constexpr Seconds longestDelay{5.0};
constexpr Seconds refusedDelay{30.0};
constexpr Seconds reachTime{1.0};
/// A connection that lasted so long was a good one: the next failure is met afresh.
constexpr Seconds steadyTime{1.0};
constexpr std::size_t longestProblem = 4000;
constexpr std::size_t mostKnownProblems = 100;

bool differ(const v1::Report& a, const v1::Report& b) { return a.SerializeAsString() != b.SerializeAsString(); }

}  // namespace

Link::Link(Identity identity, OpenStream openStream, Outbox& outbox, Pace& pace, std::size_t sendFrequency, Log log)
    : identity_(std::move(identity)), openStream_(std::move(openStream)), outbox_(outbox), pace_(pace),
      sendFrequency_(sendFrequency), log_(std::move(log)), jitter_(identity_.hello.instance()) {}

Link::~Link() { close(); }

void Link::start() {
    // Signals are the host's affair. One that comes upon this thread, such as that of a file grown too large, would end it.
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
        const bool unreachable = failures_ > 0 && Clock::now() - startedAt >= reachTime;
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
    if (!stream) return "the server is away";
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
        guarded([this] { converse(); });
        guarded([this] { disconnect(); });
        guarded([this] { rest(delay()); });
    }
    guarded([this] { outbox_.park(); });
    pace_.announce();
}

/// The edge of the thread: the host must not lose its link to a mistake of ours, or to a lack of memory.
void Link::guarded(const std::function<void()>& part) noexcept {
    try {
        part();
    } catch (const std::exception& problem) {
        try {
            note(std::string("the link to the server failed and starts again: ") + problem.what(), LogLevel::error);
        } catch (const std::exception&) {
            // There is not even memory to say so; what it was about is tried again.
        }
    }
}

void Link::converse() {
    if (stopping_) return;
    talk_ = std::make_unique<Conversation>(openStream_([this] { wake(); }), outbox_, sendFrequency_, log_);
    {
        const std::lock_guard lock(mutex_);
        stream_ = talk_->sharedStream();
    }
    v1::ClientMessage first;
    *first.mutable_hello() = hello();
    talk_->stream().send(std::move(first));
    while (!stopping_) {
        bell_.wait(outbox_.unsettled() ? Seconds::zero() : talk_->nextLook());
        if (!handle(*talk_)) return;
        sayWhatIsDue(*talk_);
        sendLeftovers(*talk_);
    }
}

void Link::disconnect() {
    const bool steady = talk_ && talk_->welcomed() && talk_->age() >= steadyTime;
    failures_ = steady ? 0 : failures_ + 1;
    {
        const std::lock_guard lock(mutex_);
        stream_.reset();
    }
    leftover_.reset();
    talk_.reset();
    setConnected(false);
}

/// Hear what there is; false if the conversation is over.
bool Link::handle(Conversation& talk) {
    while (const v1::ServerMessage* message = talk.stream().received()) {
        const bool goesOn = hear(*message, talk);
        talk.stream().heard();
        if (!goesOn) return false;
    }
    if (const std::optional<Ending> ending = talk.stream().ended()) {
        noteEnd(*ending, talk);
        return false;
    }
    return talk.welcomed() || talk.age() < welcomeTime;
}

bool Link::hear(const v1::ServerMessage& message, Conversation& talk) {
    switch (message.kind_case()) {
        case v1::ServerMessage::kWelcome:
            accept(message.welcome(), talk);
            return true;
        case v1::ServerMessage::kAck:
            outbox_.acknowledge(message.ack().sequence());
            pace_.announce();
            return true;
        case v1::ServerMessage::kSnapshot:
            return !talk.welcomed() || identity_.hello.remote() || adopt(message.snapshot(), talk.lineage());
        case v1::ServerMessage::kProblem:
            return noteProblem(message.problem());
        default:
            return true;
    }
}

void Link::accept(const v1::Welcome& welcome, Conversation& talk) {
    talk.accept(welcome);
    leftovers_ = spoolDirectories(identity_.spools);
    std::ranges::reverse(leftovers_);
    {
        const std::lock_guard lock(mutex_);
        refusal_.clear();
    }
    reported_.reset();
    const auto staleness = welcome.has_max_staleness() ? std::optional(welcome.max_staleness()) : std::nullopt;
    pace_.restrict(staleness, welcome.max_trajectory_steps());
    setConnected(true);
    log_(LogLevel::debug, "welcomed by rl4sys " + welcome.release() + ", lineage " + welcome.lineage());
}

/// Build the model and publish it; false if it cannot be read, and then it is asked for anew and whole.
bool Link::adopt(const v1::Snapshot& message, const std::string& lineage) {
    const bool newer = !held_ || held_->lineage != lineage || message.version() > held_->version;
    if (!newer && !identity_.hello.has_pinned_version()) return true;
    try {
        held_ = readModel(message, lineage, held_.get(), identity_.spec);
    } catch (const std::invalid_argument& problem) {
        note(std::string("a model could not be used: ") + problem.what(), LogLevel::warning);
        holdNothing_ = true;
        return false;
    }
    holdNothing_ = false;
    pace_.publish(held_);
    log_(LogLevel::debug, "version " + std::to_string(held_->version) + " arrived");
    return true;
}

void Link::sayWhatIsDue(Conversation& talk) {
    if (!talk.welcomed()) {
        outbox_.settle();
        return;
    }
    warnOfDrops();
    if (outbox_.waitingSteps() == 0) flushing_ = false;
    if (flushing_) talk.hurry();
    stepsSent_ += talk.sendWaiting();
    report(talk);
}

/// Tell at once when a model was adopted, else at most once a second, and only what changed.
void Link::report(Conversation& talk) {
    const Figures figures = pace_.figures();
    const std::uint64_t version = figures.adoptedVersion.value_or(0);
    const bool adopted = !reported_ || reported_->adopted_version() != version;
    if (!talk.stream().ready() || (!adopted && Clock::now() - reportedAt_ < longestWait)) return;
    v1::Report report;
    report.set_adopted_version(version);
    report.set_decisions(figures.decisions);
    report.set_fallback_decisions(figures.fallbackDecisions);
    report.set_dropped_steps(outbox_.droppedSteps());
    report.set_late_rewards(figures.lateRewards);
    report.set_outbox_bytes(outbox_.memoryBytes());
    report.set_spool_bytes(outbox_.spoolBytes());
    if (reported_ && !differ(report, *reported_)) return;
    reported_ = report;
    reportedAt_ = Clock::now();
    v1::ClientMessage message;
    *message.mutable_report() = std::move(report);
    talk.stream().send(std::move(message));
}

v1::Hello Link::hello() const {
    v1::Hello hello = identity_.hello;
    if (held_ && !holdNothing_) {
        hello.mutable_held()->set_lineage(held_->lineage);
        hello.mutable_held()->set_version(held_->version);
        hello.mutable_held()->set_digest(held_->digest);
    }
    return hello;
}

bool Link::noteProblem(const v1::Problem& problem) {
    if (problem.kind() == v1::Problem::REFUSED) {
        noteRefusal("the server refused this client: " + problem.message());
        return false;
    }
    if (problem.kind() == v1::Problem::TRAJECTORY_REFUSED) ++trajectoriesRefused_;
    note(problem.message(), LogLevel::warning);
    return true;
}

void Link::noteEnd(const Ending& ending, const Conversation& talk) {
    if (stopping_ || !refusal().empty()) return;
    const std::string& text = ending.message;
    if (ending.kind == Ending::Kind::unauthenticated) {
        noteRefusal("the server refused this client: " + text + "; check server.token");
    } else if (ending.kind == Ending::Kind::denied) {
        noteRefusal("the server refused this client: " + text + "; check server.token and policy_id");
    } else {
        setLastProblem(text);
        log_(talk.welcomed() ? LogLevel::warning : LogLevel::debug, "the connection to the server ended: " + text);
    }
}

void Link::noteRefusal(const std::string& text) {
    note(text, LogLevel::error);
    {
        const std::lock_guard lock(mutex_);
        refusal_ = text.substr(0, longestProblem);
    }
    pace_.announce();
}

/// Remember a problem; log it the first time.
void Link::note(const std::string& text, LogLevel level) {
    const std::string cut = text.substr(0, longestProblem);
    setLastProblem(cut);
    if (knownProblems_.size() < mostKnownProblems && knownProblems_.insert(cut).second) log_(level, cut);
}

void Link::setLastProblem(const std::string& text) {
    const std::lock_guard lock(mutex_);
    lastProblem_ = text.substr(0, longestProblem);
}

void Link::setConnected(bool connected) {
    connected_ = connected;
    pace_.announce();
}

void Link::warnOfDrops() {
    if (outbox_.droppedSteps() == 0 || std::exchange(warnedOfDrops_, true)) return;
    log_(LogLevel::warning, "steps are given up, the oldest first: the server is away or too slow, and outbox and spool "
                            "are full. Further ones are only counted");
}

/// Exponential backoff with full jitter, so that clients of a server that died do not come back as one.
Seconds Link::delay() {
    if (!refusal().empty()) return refusedDelay;
    const std::uint32_t doublings = std::min<std::uint32_t>(failures_ > 0 ? failures_ - 1 : 0, 10);
    const Seconds ceiling = std::min(longestDelay, firstDelay * static_cast<double>(1u << doublings));
    return ceiling * std::uniform_real_distribution<double>()(jitter_);
}

/// Wait before the next attempt, keeping what comes in meanwhile in bounds.
void Link::rest(Seconds seconds) {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
    while (!stopping_ && Clock::now() < until) {
        bell_.wait(outbox_.unsettled() ? Seconds::zero() : Seconds(until - Clock::now()));
        outbox_.settle();
        warnOfDrops();
    }
}

/// Send what processes of this client that died had on disk, each under the name it had; the living come first.
void Link::sendLeftovers(const Conversation& talk) {
    if (!talk.welcomed() || (!identity_.hello.remote() && !pace_.hasModel())) return;
    while (!leftover_ && !leftovers_.empty()) {
        const std::filesystem::path directory = std::move(leftovers_.back());
        leftovers_.pop_back();
        std::unique_ptr<Spool> spool = Spool::ofTheDead(directory);
        if (!spool) continue;
        log_(LogLevel::debug, "sending what an earlier process of this client left in " + directory.string());
        leftover_ = std::make_unique<Leftover>(std::move(spool), openStream_, [this] { wake(); }, log_);
    }
    if (!leftover_ || leftover_->advance() == Leftover::Progress::underWay) return;
    leftover_.reset();
    // There may be another.
    wake();
}

}  // namespace rl4sys::client
