#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "episodes.hpp"
#include "fallback.hpp"
#include "trajectory_encoder.hpp"
#include "link.hpp"
#include "rl4sys/agent.hpp"

namespace rl4sys::client {

/// Implementation of `RL4SysAgent`. Trajectories share its ownership, so that a trajectory may outlive the agent.
class Client : public std::enable_shared_from_this<Client> {
public:
    Client(ClientConfig config, AgentOptions options);
    ~Client();

    /// Create a client. A forked child never destroys it, because the child lacks the client's threads and connection.
    static std::shared_ptr<Client> make(ClientConfig config, const AgentOptions& options);

    /// Start the link and wait up to `server.timeout_seconds` until the server has refused this client or sent the
    /// first model (with remote inference: until the connection is established).
    /// \throws ConfigError if the server refuses this client.
    void start();

    RL4SysAction decide(RL4SysTrajectory& trajectory, std::span<const float> observation, std::span<const bool> mask);
    void add(RL4SysTrajectory& trajectory, RL4SysAction& action);
    void end(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end);
    void abandon(Episode& episode);
    static void reward(RL4SysAction& action, double reward);

    std::optional<std::uint64_t> version() const;
    bool waitForModel(Seconds timeout, std::optional<std::uint64_t> version);
    bool flush(Seconds timeout) { return link_.flush(timeout); }
    Statistics statistics() const;
    void close();

private:
    bool decideFast(RL4SysTrajectory& trajectory, std::span<const float> observation, std::span<const bool> mask,
                    RL4SysAction& action);
    RL4SysAction decideSlow(RL4SysTrajectory& trajectory, std::span<const float> observation,
                            std::span<const bool> mask);
    RL4SysAction decideRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                              std::span<const bool> mask);
    RL4SysAction recordRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                              std::span<const bool> mask, const v1::ActReply& reply);
    std::string requestRemoteAction(std::span<const float> observation, std::span<const bool> mask,
                                    v1::ActReply& reply);
    RL4SysAction useFallback(RL4SysTrajectory& trajectory, std::span<const float> observation,
                             std::span<const bool> mask, std::string_view reason);
    void abandonEpisode(RL4SysTrajectory& trajectory, std::span<const float> row = {}, std::span<const bool> mask = {});
    void bindDecision(RL4SysTrajectory& trajectory, float logProb, RL4SysAction& action);
    void setDiscreteAction(const RL4SysTrajectory& trajectory, RL4SysAction& action) const noexcept;
    static void setContinuousAction(const RL4SysTrajectory& trajectory, RL4SysAction& action) noexcept;
    void checkSizes(std::span<const float> observation, std::span<const bool> mask) const;
    void checkEnd(const RL4SysTrajectory& trajectory, const RL4SysAction& action, const TrajectoryEnd& end) const;
    void attach(RL4SysTrajectory& trajectory);

    bool isOwnedByThisProcess() const noexcept;

    const pid_t process_ = ::getpid();
    ClientConfig config_;
    Log log_;
    TrajectoryEncoder encoder_;
    Fallback fallback_;
    SharedDraws draws_;
    Pace pace_;
    ClientIdentity identity_;
    Outbox outbox_;
    Link link_;
    Episodes episodes_;
    std::mutex remoteMutex_;
    std::mutex closeMutex_;
    std::atomic<bool> closed_ = false;
};

}  // namespace rl4sys::client
