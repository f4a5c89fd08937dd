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

#include "spool_sender.hpp"

namespace rl4sys::client {

/// Identity of a client towards the server, and the directory of its spools.
struct ClientIdentity {
    v1::Hello hello;
    Spec spec;
    std::filesystem::path spools;
};

/// Background thread for all communication with the training server: connects, sends the outbox, publishes received
/// models and reconnects after failures.
class Link {
public:
    Link(ClientIdentity identity, OpenStream openStream, Outbox& outbox, Pace& pace, std::size_t sendFrequency,
         Log log);
    ~Link();

    void start();

    /// Wake the link's thread, for example after a recording was submitted. Never blocks.
    void wake() { wakeEvent_.notify(); }

    /// Wait until the server has refused or welcomed this client and, if `model` is set, has sent a model. Returns
    /// early if the server is unreachable.
    void waitUntilAnswered(Seconds timeout, bool model);

    /// Wait until all submitted recordings are acknowledged. Returns false on timeout.
    bool flush(Seconds timeout);

    /// Request one decision from the server. Returns an error message, or an empty string on success. Does not wait for
    /// a connection if there is none.
    std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply);

    /// Close the connection and write unsent trajectories to disk.
    void close();

    bool connected() const noexcept { return connected_; }
    std::uint64_t stepsSent() const noexcept { return stepsSent_; }
    std::uint64_t trajectoriesRefused() const noexcept { return trajectoriesRefused_; }
    std::string lastProblem() const;

    /// Error message of a refusal by the server; empty if this client was not refused.
    std::string refusal() const;

private:
    void run();
    void runGuarded(const std::function<void()>& part) noexcept;
    void runConnection();
    void disconnect();
    bool handleMessages(Connection& connection);
    bool onMessage(const v1::ServerMessage& message, Connection& connection);
    void onWelcome(const v1::Welcome& welcome, Connection& connection);
    bool onSnapshot(const v1::Snapshot& message, const std::string& lineage);
    void sendDue(Connection& connection);
    void sendReport(Connection& connection);
    v1::Hello hello() const;
    bool onProblem(const v1::Problem& problem);
    void onStreamEnd(const StreamEnd& end, const Connection& connection);
    void setRefusal(const std::string& text);
    void reportError(const std::string& text, LogLevel level);
    void setLastProblem(const std::string& text);
    void setConnected(bool connected);
    void warnIfDropping();
    Seconds retryDelay();
    void waitBeforeRetry(Seconds seconds);
    void sendAbandonedSpools(const Connection& connection);

    ClientIdentity identity_;
    OpenStream openStream_;
    Outbox& outbox_;
    Pace& pace_;
    std::size_t sendFrequency_;
    Log log_;
    WakeEvent wakeEvent_;
    std::atomic<bool> stopping_ = false;
    std::atomic<bool> flushing_ = false;
    std::atomic<bool> connected_ = false;
    std::atomic<std::uint64_t> stepsSent_ = 0;
    std::atomic<std::uint64_t> trajectoriesRefused_ = 0;
    std::atomic<std::uint32_t> failures_ = 0;
    mutable std::mutex mutex_;  ///< Guards the next three members, which other threads read.
    std::string lastProblem_;
    std::string refusal_;
    std::shared_ptr<Stream> stream_;
    std::unique_ptr<Connection> connection_;
    std::vector<std::filesystem::path> abandonedSpools_;  ///< Spools of terminated processes; the oldest is last.
    std::unique_ptr<SpoolSender> spoolSender_;            ///< Sender of the current abandoned spool; null if none.
    std::shared_ptr<const Model> heldModel_;
    bool requestFullModel_ = false;
    bool warnedDropping_ = false;
    std::optional<v1::Report> reported_;
    Clock::time_point reportedAt_;
    std::set<std::string> loggedErrors_;
    std::mt19937_64 jitter_;
    std::thread thread_;
};

}  // namespace rl4sys::client
