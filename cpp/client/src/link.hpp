#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "leftover.hpp"

namespace rl4sys::client {

/// Who a client is to the server, and where its trajectories are kept.
struct Identity {
    v1::Hello hello;
    Spec spec;
    std::filesystem::path spools;
};

/// The thread that talks to the training server, so that the host never does: it connects, sends what the outbox
/// holds, publishes the models that come, and connects again when the connection breaks.
class Link {
public:
    Link(Identity identity, OpenStream openStream, Outbox& outbox, Pace& pace, std::size_t sendFrequency, Log log);
    ~Link();

    void start();

    /// Look for something to send. Never waits.
    void wake() { bell_.ring(); }

    /// Wait until the server has refused or welcomed this client, with `model` until it has sent one. One that cannot
    /// even be reached is not waited for as long as one that is making a policy.
    void waitUntilAnswered(Seconds timeout, bool model);

    /// Wait until everything handed over is acknowledged.
    bool flush(Seconds timeout);

    /// One decision by the server; at once a failure while there is no connection.
    std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply);

    /// End the conversation and put what is left on disk.
    void close();

    bool connected() const noexcept { return connected_; }
    std::uint64_t stepsSent() const noexcept { return stepsSent_; }
    std::uint64_t trajectoriesRefused() const noexcept { return trajectoriesRefused_; }
    std::string lastProblem() const;

    /// Why the server will not have this client; empty if it will.
    std::string refusal() const;

private:
    void run();
    void guarded(const std::function<void()>& part) noexcept;
    void converse();
    void disconnect();
    bool handle(Conversation& talk);
    bool hear(const v1::ServerMessage& message, Conversation& talk);
    void accept(const v1::Welcome& welcome, Conversation& talk);
    bool adopt(const v1::Snapshot& message, const std::string& lineage);
    void sayWhatIsDue(Conversation& talk);
    void report(Conversation& talk);
    v1::Hello hello() const;
    bool noteProblem(const v1::Problem& problem);
    void noteEnd(const Ending& ending, const Conversation& talk);
    void noteRefusal(const std::string& text);
    void note(const std::string& text, LogLevel level);
    void setLastProblem(const std::string& text);
    void setConnected(bool connected);
    void warnOfDrops();
    Seconds delay();
    void rest(Seconds seconds);
    void sendLeftovers(const Conversation& talk);

    Identity identity_;
    OpenStream openStream_;
    Outbox& outbox_;
    Pace& pace_;
    std::size_t sendFrequency_;
    Log log_;
    Bell bell_;
    std::atomic<bool> stopping_ = false;
    std::atomic<bool> flushing_ = false;
    std::atomic<bool> connected_ = false;
    std::atomic<std::uint64_t> stepsSent_ = 0;
    std::atomic<std::uint64_t> trajectoriesRefused_ = 0;
    std::atomic<std::uint32_t> failures_ = 0;
    mutable std::mutex mutex_;  ///< Guards the next three, which other threads look at.
    std::string lastProblem_;
    std::string refusal_;
    std::shared_ptr<Stream> stream_;
    std::unique_ptr<Conversation> talk_;
    std::vector<std::filesystem::path> leftovers_;  ///< Of dead processes, the oldest last.
    std::unique_ptr<Leftover> leftover_;            ///< The one being sent.
    std::shared_ptr<const Model> held_;
    bool holdNothing_ = false;
    bool warnedOfDrops_ = false;
    std::optional<v1::Report> reported_;
    Clock::time_point reportedAt_;
    std::set<std::string> knownProblems_;
    std::mt19937_64 jitter_;
    std::thread thread_;
};

}  // namespace rl4sys::client
