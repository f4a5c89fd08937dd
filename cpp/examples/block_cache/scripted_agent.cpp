#include "scripted_agent.hpp"

#include <utility>

namespace scripted {

Script script;

rl4sys::RL4SysAgent makeAgent() { return rl4sys::RL4SysAgent("scripted.json"); }

}  // namespace scripted

namespace rl4sys {

namespace client {

struct Episode {
    std::vector<scripted::Step> steps;
    std::vector<float> latest;
};

/// Replacement of the client in the library. It has the same name, so that it is a friend of actions and trajectories.
class Client {
public:
    static RL4SysAction decide(RL4SysTrajectory& trajectory, std::span<const float> observation) {
        ++scripted::script.requests;
        if (!trajectory.episode_) trajectory.episode_ = new Episode();
        trajectory.episode_->latest.assign(observation.begin(), observation.end());
        RL4SysAction action;
        action.episode_ = trajectory.episode_;
        action.kind_ = RL4SysAction::Kind::discrete;
        action.act_ = scripted::script.act;
        action.version_ = scripted::script.version.value_or(0);
        if (!scripted::script.version) action.reason_ = "no model has arrived yet";
        return action;
    }

    static void add(RL4SysTrajectory& trajectory, RL4SysAction& action) {
        action.step_ = trajectory.episode_->steps.size();
        trajectory.episode_->steps.push_back({trajectory.episode_->latest, action.act_, {}});
    }

    static void end(RL4SysTrajectory& trajectory, const TrajectoryEnd& end) {
        scripted::script.ended.push_back({std::move(trajectory.episode_->steps), end.truncated});
        forget(trajectory);
    }

    static void forget(RL4SysTrajectory& trajectory) { delete std::exchange(trajectory.episode_, nullptr); }

    static void reward(const RL4SysAction& action, double reward) {
        action.episode_->steps.at(action.step_).reward = reward;
    }

    static RL4SysTrajectory& assign(RL4SysTrajectory& to, RL4SysTrajectory& from) {
        std::swap(to.episode_, from.episode_);
        return to;
    }
};

}  // namespace client

using client::Client;

void RL4SysAction::updateReward(double reward) {
    reward_ = reward;
    Client::reward(*this, reward);
}

RL4SysTrajectory::RL4SysTrajectory(RL4SysTrajectory&& other) noexcept { Client::assign(*this, other); }
RL4SysTrajectory& RL4SysTrajectory::operator=(RL4SysTrajectory&& other) noexcept {
    return Client::assign(*this, other);
}
RL4SysTrajectory::~RL4SysTrajectory() { Client::forget(*this); }

RL4SysAgent::RL4SysAgent(const std::filesystem::path&, AgentOptions) {}
RL4SysAgent::~RL4SysAgent() = default;
RL4SysAgent::RL4SysAgent(RL4SysAgent&&) noexcept = default;

RL4SysAction RL4SysAgent::requestForAction(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                           std::span<const bool>) {
    return Client::decide(trajectory, observation);
}

void RL4SysAgent::addToTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action) {
    Client::add(trajectory, action);
}

void RL4SysAgent::markEndOfTrajectory(RL4SysTrajectory& trajectory, RL4SysAction&, const TrajectoryEnd& end) {
    Client::end(trajectory, end);
}

}  // namespace rl4sys
