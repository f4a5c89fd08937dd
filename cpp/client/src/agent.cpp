#include "rl4sys/agent.hpp"

#include <utility>

#include "client.hpp"

namespace rl4sys {

void RL4SysAction::updateReward(double reward) { client::Client::reward(*this, reward); }

RL4SysTrajectory::RL4SysTrajectory(RL4SysTrajectory&& other) noexcept
    : client_(std::move(other.client_)), episode_(std::exchange(other.episode_, nullptr)),
      acts_(std::move(other.acts_)), values_(std::move(other.values_)), reason_(std::move(other.reason_)) {}

RL4SysTrajectory& RL4SysTrajectory::operator=(RL4SysTrajectory&& other) noexcept {
    std::swap(client_, other.client_);
    std::swap(episode_, other.episode_);
    std::swap(acts_, other.acts_);
    std::swap(values_, other.values_);
    std::swap(reason_, other.reason_);
    return *this;
}

RL4SysTrajectory::~RL4SysTrajectory() {
    // The episode cannot be ended any more, but its steps are still useful for training.
    if (episode_ != nullptr) client_->abandon(*episode_);
}

std::size_t RL4SysTrajectory::steps() const noexcept {
    return episode_ == nullptr ? 0 : episode_->recorder.offset() + episode_->recorder.steps();
}

RL4SysAgent::RL4SysAgent(const std::filesystem::path& confPath, AgentOptions options)
    : client_(client::Client::make(client::loadClientConfig(confPath, options.settings), options)) {
    client_->start();
}

RL4SysAgent::~RL4SysAgent() {
    if (client_) client_->close();
}

RL4SysAgent::RL4SysAgent(RL4SysAgent&&) noexcept = default;

RL4SysAgent& RL4SysAgent::operator=(RL4SysAgent&& other) noexcept {
    std::swap(client_, other.client_);
    return *this;
}

RL4SysAction RL4SysAgent::requestForAction(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                           std::span<const bool> mask) {
    return client_->decide(trajectory, observation, mask);
}

void RL4SysAgent::addToTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action) {
    client_->add(trajectory, action);
}

void RL4SysAgent::markEndOfTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end) {
    client_->end(trajectory, action, end);
}

std::optional<std::uint64_t> RL4SysAgent::version() const { return client_->version(); }

bool RL4SysAgent::waitForModel(std::chrono::duration<double> timeout, std::optional<std::uint64_t> version) {
    return client_->waitForModel(timeout, version);
}

bool RL4SysAgent::flush(std::chrono::duration<double> timeout) { return client_->flush(timeout); }

Statistics RL4SysAgent::statistics() const { return client_->statistics(); }

void RL4SysAgent::close() { client_->close(); }

}  // namespace rl4sys
