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
#include "layout.hpp"
#include "link.hpp"
#include "rl4sys/agent.hpp"

namespace rl4sys::client {

/// All that an agent is: it outlives the agent for as long as a trajectory needs it.
class Client : public std::enable_shared_from_this<Client> {
public:
    Client(Settings settings, AgentOptions options);
    ~Client();

    /// One that is left alone by copies of its process: these have neither its threads nor its connection.
    static std::shared_ptr<Client> make(Settings settings, const AgentOptions& options);

    /// Begin to talk to the server, and wait a little for what it says.
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
    bool decideOn(RL4SysTrajectory& trajectory, std::span<const float> observation, std::span<const bool> mask,
                  RL4SysAction& action);
    RL4SysAction decideSlowly(RL4SysTrajectory& trajectory, std::span<const float> observation,
                              std::span<const bool> mask);
    RL4SysAction decideRemotely(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                std::span<const bool> mask);
    RL4SysAction recordRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                              std::span<const bool> mask, const v1::ActReply& reply);
    std::string ask(std::span<const float> observation, std::span<const bool> mask, v1::ActReply& reply);
    RL4SysAction fallBack(RL4SysTrajectory& trajectory, std::span<const float> observation,
                          std::span<const bool> mask, std::string_view reason);
    void breakOff(RL4SysTrajectory& trajectory, std::span<const float> row = {}, std::span<const bool> mask = {});
    void makeDecided(RL4SysTrajectory& trajectory, float logProb, RL4SysAction& action);
    void giveChoices(const RL4SysTrajectory& trajectory, RL4SysAction& action) const noexcept;
    void expectFit(std::span<const float> observation, std::span<const bool> mask) const;
    void expectEnd(const RL4SysTrajectory& trajectory, const RL4SysAction& action, const TrajectoryEnd& end) const;
    void adoptHandle(RL4SysTrajectory& trajectory);

    bool isOfThisProcess() const noexcept;

    const pid_t process_ = ::getpid();
    Settings settings_;
    Log log_;
    Layout layout_;
    Fallback fallback_;
    SharedDraws draws_;
    Pace pace_;
    Identity identity_;
    Outbox outbox_;
    Link link_;
    Episodes episodes_;
    std::mutex asking_;
    std::mutex closing_;
    std::atomic<bool> closed_ = false;
};

}  // namespace rl4sys::client
