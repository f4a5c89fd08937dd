#include "client.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "seeds.hpp"
#include "wire.hpp"

namespace rl4sys::client {

namespace {

/// Maximum size of a recording in bytes, which keeps messages and their copies small.
constexpr std::size_t maxRecordingBytes = 4 << 20;

std::uint64_t randomNumber() {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
}

const char* nameOf(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::debug: return "DEBUG";
        case LogLevel::info: return "INFO";
        case LogLevel::warning: return "WARNING";
        default: return "ERROR";
    }
}

void logToStandardError(LogLevel level, std::string_view message) {
    std::fprintf(stderr, "rl4sys.client %s %.*s\n", nameOf(level), static_cast<int>(message.size()), message.data());
}

/// Return a log function that filters by level and catches exceptions of the host's log function.
Log makeLog(const AgentOptions& options) {
    Log write = options.log ? options.log : Log(logToStandardError);
    const LogLevel least = options.debug ? LogLevel::debug : LogLevel::warning;
    return [write = std::move(write), least](LogLevel level, std::string_view message) {
        if (level < least) return;
        try {
            write(level, message);
        } catch (...) {
            logToStandardError(level, message);
        }
    };
}

ClientIdentity makeIdentity(const ClientConfig& config) {
    ClientIdentity identity{.hello = {}, .spec = config.spec, .spools = {}};
    v1::Hello& hello = identity.hello;
    hello.set_protocol(protocol);
    hello.set_client_id(config.clientId);
    hello.set_instance(randomNumber());
    hello.set_policy_id(config.policyId);
    hello.set_spec(config.spec.toJson().dump());
    hello.set_settings(config.learnerSettings);
    if (config.pinVersion) hello.set_pinned_version(*config.pinVersion);
    hello.set_remote(config.remote);
    std::filesystem::path home = config.outbox.spool;
    if (home.empty()) {
        std::error_code none;
        home = std::filesystem::temp_directory_path(none) / ("rl4sys-" + std::to_string(::getuid()));
    }
    identity.spools = home / config.clientId;
    return identity;
}

std::unique_ptr<Spool> makeSpool(const ClientConfig& config, const ClientIdentity& identity) {
    char name[17];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(identity.hello.instance()));
    return std::make_unique<Spool>(identity.spools / name, config.outbox.spoolBytes,
                                   identity.hello.SerializeAsString());
}

std::size_t maxRecordingSteps(const ClientConfig& config, const TrajectoryEncoder& encoder) {
    return std::min(config.maxTrajLength, std::max<std::size_t>(1, maxRecordingBytes / encoder.stepBytes()));
}

/// Copy a column to `values`. Returns false and copies nothing if the type or length of the column is wrong.
template <typename T>
bool readColumn(const v1::Column& column, v1::DType dtype, std::span<T> values) {
    if (column.dtype() != dtype || column.values().size() != values.size_bytes()) return false;
    std::memcpy(values.data(), column.values().data(), values.size_bytes());
    return true;
}

}  // namespace

Client::Client(ClientConfig config, AgentOptions options)
    : config_(std::move(config)), log_(makeLog(options)), encoder_(config_.spec),
      fallback_(config_, options), draws_(config_.seed ? drawsKey(*config_.seed) : randomNumber()),
      pace_(maxRecordingSteps(config_, encoder_), config_.maxStaleness), identity_(makeIdentity(config_)),
      outbox_(config_.outbox.memoryBytes, makeSpool(config_, identity_),
              [this](const Recording& recording) { return encoder_.encode(recording); }, log_),
      link_(identity_, grpcStreams(config_.server), outbox_, pace_, config_.sendFrequency, log_),
      episodes_(config_.spec, pace_, outbox_, [this] { link_.wake(); },
                Seconds(config_.remote ? 0.0 : config_.patienceSeconds), log_) {}

Client::~Client() { close(); }

std::shared_ptr<Client> Client::make(ClientConfig config, const AgentOptions& options) {
    const auto deleter = [](Client* client) {
        if (client->isOwnedByThisProcess()) delete client;
    };
    return std::shared_ptr<Client>(new Client(std::move(config), options), deleter);
}

bool Client::isOwnedByThisProcess() const noexcept { return process_ == ::getpid(); }

void Client::start() {
    link_.start();
    link_.waitUntilAnswered(Seconds(config_.server.timeoutSeconds), !config_.remote);
    if (const std::string refusal = link_.refusal(); !refusal.empty()) {
        close();
        throw ConfigError(refusal);
    }
    const std::string place = "the training server at " + config_.server.address;
    if (!link_.connected()) {
        std::string reason = link_.lastProblem();
        const bool closed = reason.find("Socket closed") != reason.npos;
        if (!config_.server.tls && closed) reason += "; if the server uses TLS, set server.tls";
        if (reason.empty()) reason = "no answer yet";
        log_(LogLevel::warning, place + " is not reachable (" + reason + "); continuing with the fallback action");
    } else if (!config_.remote && !pace_.hasModel()) {
        log_(LogLevel::warning, place + " has no model yet; continuing with the fallback action");
    }
}

RL4SysAction Client::decide(RL4SysTrajectory& trajectory, std::span<const float> observation,
                            std::span<const bool> mask) {
    RL4SysAction action;
    if (trajectory.episode_ != nullptr && trajectory.client_.get() == this &&
        decideFast(trajectory, observation, mask, action)) {
        return action;
    }
    return decideSlow(trajectory, observation, mask);
}

/// Decide within the current recording, without a lock. Returns false if the recording is full or the policy cannot
/// decide.
bool Client::decideFast(RL4SysTrajectory& trajectory, std::span<const float> observation, std::span<const bool> mask,
                        RL4SysAction& action) {
    Episode& episode = *trajectory.episode_;
    if (episode.model == nullptr || episode.model->program == nullptr) return false;
    const Program& program = *episode.model->program;
    if (config_.spec.actionCount > 0) {
        const std::optional<float> logProb =
            episode.recorder.decide(program, observation, mask, draws_, episode.scratch, trajectory.acts_);
        if (!logProb) return false;
        setDiscreteAction(trajectory, action);
        bindDecision(trajectory, *logProb, action);
        return true;
    }
    if (!mask.empty()) episode.recorder.checkMasked();
    const std::optional<float> logProb =
        episode.recorder.decide(program, observation, draws_, episode.scratch, trajectory.values_);
    if (!logProb) return false;
    legalize(config_.spec.action, trajectory.values_, trajectory.values_);
    setContinuousAction(trajectory, action);
    bindDecision(trajectory, *logProb, action);
    return true;
}

void Client::setDiscreteAction(const RL4SysTrajectory& trajectory, RL4SysAction& action) const noexcept {
    if (config_.spec.multiDiscrete.empty()) {
        action.kind_ = RL4SysAction::Kind::discrete;
        action.act_ = trajectory.acts_.front();
    } else {
        action.kind_ = RL4SysAction::Kind::multiDiscrete;
        action.acts_ = trajectory.acts_;
    }
}

void Client::setContinuousAction(const RL4SysTrajectory& trajectory, RL4SysAction& action) noexcept {
    action.kind_ = RL4SysAction::Kind::box;
    action.values_ = trajectory.values_;
}

/// Mark `action` as the latest decision of the episode, which `add` may record as a step.
void Client::bindDecision(RL4SysTrajectory& trajectory, float logProb, RL4SysAction& action) {
    Episode& episode = *trajectory.episode_;
    episode.pending = true;
    action.client_ = this;
    action.episode_ = &episode;
    action.episodeNumber_ = episode.number.load(std::memory_order_relaxed);
    action.decision_ = ++episode.decisions;
    action.version_ = episode.version;
    action.logProb_ = logProb;
}

/// Decide in the cases that `decideFast` does not handle: a new episode, a full recording, remote inference and the
/// fallback.
RL4SysAction Client::decideSlow(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                std::span<const bool> mask) {
    checkSizes(observation, mask);
    attach(trajectory);
    if (!detail::allFinite(observation)) {
        abandonEpisode(trajectory);
        return useFallback(trajectory, observation, mask, "the observation contains NaN or infinity");
    }
    if (config_.remote) return decideRemote(trajectory, observation, mask);
    if (!pace_.hasModel()) return useFallback(trajectory, observation, mask, "no model has arrived yet");
    if (trajectory.episode_ == nullptr) trajectory.episode_ = &episodes_.begin();
    RL4SysAction action;
    while (!decideFast(trajectory, observation, mask, action)) {
        if (!trajectory.episode_->isFull()) {
            abandonEpisode(trajectory, observation, mask);
            return useFallback(trajectory, observation, mask, "the policy returned NaN");
        }
        // The recording is full, or another thread or a newer model has requested a cut.
        episodes_.cutIfDue(*trajectory.episode_, observation, mask);
    }
    return action;
}

RL4SysAction Client::decideRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask) {
    v1::ActReply reply;
    std::string_view error;
    const Spec& spec = config_.spec;
    const std::string problem = requestRemoteAction(observation, mask, reply);
    if (!problem.empty()) {
        error = problem;
    } else if (spec.actionCount > 0) {
        const bool readable = readColumn(reply.action(), v1::DTYPE_INT64, std::span(trajectory.acts_));
        if (!readable || !spec.isLegal(trajectory.acts_, mask)) error = "the action from the server is not legal";
    } else if (!readColumn(reply.action(), v1::DTYPE_FLOAT32, std::span(trajectory.values_)) ||
               !detail::allFinite(trajectory.values_)) {
        error = "the action from the server has the wrong type or size, or is not finite";
    }
    if (error.empty() && !std::isfinite(reply.log_prob())) error = "the log-probability from the server is not finite";
    if (!error.empty()) {
        abandonEpisode(trajectory, observation, mask);
        return useFallback(trajectory, observation, mask, error);
    }
    return recordRemote(trajectory, observation, mask, reply);
}

RL4SysAction Client::recordRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask, const v1::ActReply& reply) {
    Model model;
    model.lineage = reply.lineage();
    model.version = reply.version();
    model.stepsToNextUpdate = reply.wants() > 0 ? reply.wants() : unlimitedSteps;
    model.learnedSequence = unlimitedSteps;
    if (pace_.isNewer(model)) pace_.publish(std::make_shared<const Model>(model));
    if (trajectory.episode_ == nullptr) {
        trajectory.episode_ = &episodes_.begin();
    } else if (trajectory.episode_->version != model.version) {
        episodes_.cut(*trajectory.episode_, observation, mask);
    } else if (trajectory.episode_->isFull()) {
        episodes_.cutIfDue(*trajectory.episode_, observation, mask);
    }
    Episode& episode = *trajectory.episode_;
    // Another thread may have received a newer model in the meantime; record the version that made this decision.
    episode.version = model.version;
    RL4SysAction action;
    if (config_.spec.actionCount > 0) {
        episode.recorder.setPending(observation, mask, trajectory.acts_, reply.log_prob());
        setDiscreteAction(trajectory, action);
    } else {
        episode.recorder.setPending(observation, std::span<const float>(trajectory.values_), reply.log_prob());
        legalize(config_.spec.action, trajectory.values_, trajectory.values_);
        setContinuousAction(trajectory, action);
    }
    bindDecision(trajectory, reply.log_prob(), action);
    return action;
}

std::string Client::requestRemoteAction(std::span<const float> observation, std::span<const bool> mask,
                                        v1::ActReply& reply) {
    // Send one request at a time, because the server's reply contains the draws counter for the next request.
    const std::lock_guard lock(remoteMutex_);
    v1::ActRequest request;
    request.set_client_id(config_.clientId);
    request.set_policy_id(config_.policyId);
    encoder_.writeObservation(observation, mask, request);
    request.set_draws_key(draws_.state().key);
    request.set_draws_counter(draws_.state().counter);
    std::string problem = link_.act(request, Seconds(config_.server.actTimeoutSeconds), reply);
    if (problem.empty()) draws_.setCounter(reply.draws_counter());
    return problem;
}

RL4SysAction Client::useFallback(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                 std::span<const bool> mask, std::string_view reason) {
    RL4SysAction action;
    trajectory.reason_ = reason;
    if (config_.spec.actionCount > 0) {
        fallback_.chooseDiscrete(observation, mask, trajectory.acts_, trajectory.reason_);
        setDiscreteAction(trajectory, action);
    } else {
        fallback_.chooseContinuous(observation, trajectory.values_, trajectory.reason_);
        setContinuousAction(trajectory, action);
    }
    pace_.countFallback();
    action.reason_ = trajectory.reason_;
    return action;
}

void Client::add(RL4SysTrajectory& trajectory, RL4SysAction& action) {
    Episode* episode = action.episode_;
    if (episode == nullptr || action.step_ != RL4SysAction::unadded) return;
    if (action.client_ != this || (trajectory.episode_ != episode && !closed_)) {
        throw std::invalid_argument(
            "the action belongs to another agent or another trajectory; add it to the trajectory it was requested for");
    }
    const bool current = episode->number.load(std::memory_order_relaxed) == action.episodeNumber_;
    if (!current || !episode->pending || episode->decisions != action.decision_) {
        if (closed_) return;
        throw std::invalid_argument(
            "the action is not the latest of its trajectory; add each action before requesting the next");
    }
    episode->pending = false;
    action.step_ = episode->recorder.commit();
    if (action.reward_) episode->recorder.reward(action.step_, *action.reward_);
}

void Client::end(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end) {
    checkEnd(trajectory, action, end);
    add(trajectory, action);
    Episode* episode = std::exchange(trajectory.episode_, nullptr);
    if (episode == nullptr) return;
    const bool known = detail::allFinite(end.finalObservation);
    episodes_.end(*episode, known ? end.finalObservation : std::span<const float>(),
                  known ? end.finalMask : std::span<const bool>(), end.truncated);
}

/// Validate all arguments before the first change, so that an invalid call changes nothing.
void Client::checkEnd(const RL4SysTrajectory& trajectory, const RL4SysAction& action,
                      const TrajectoryEnd& end) const {
    const bool foreign = trajectory.client_ != nullptr && trajectory.client_.get() != this;
    if (foreign || (action.client_ != nullptr && action.client_ != this)) {
        throw std::invalid_argument(
            "the trajectory or the action belongs to another agent; end it with the agent that returned the action");
    }
    const bool differ = action.episode_ != nullptr && action.episode_ != trajectory.episode_;
    if (trajectory.episode_ != nullptr && differ && !closed_) {
        throw std::invalid_argument("the action belongs to another trajectory; end a trajectory with its own last "
                                    "action");
    }
    if (!end.finalObservation.empty()) {
        checkSizes(end.finalObservation, end.finalMask);
    } else if (!end.finalMask.empty()) {
        throw std::invalid_argument("finalMask was given without finalObservation; give both or neither");
    }
}

void Client::abandon(Episode& episode) {
    if (isOwnedByThisProcess()) episodes_.abandon(episode);
}

void Client::reward(RL4SysAction& action, double reward) {
    if (!std::isfinite(static_cast<float>(reward))) {
        throw std::domain_error("a reward must be a finite float32, got " + std::to_string(reward));
    }
    if (action.step_ != RL4SysAction::unadded) {
        const bool current = action.episode_->number.load(std::memory_order_relaxed) == action.episodeNumber_;
        if (!current || !action.episode_->recorder.reward(action.step_, reward)) {
            action.client_->episodes_.onLateReward();
        }
    }
    action.reward_ = reward;
}

std::optional<std::uint64_t> Client::version() const {
    const std::shared_ptr<const Model> model = pace_.model();
    return model ? std::optional(model->version) : std::nullopt;
}

bool Client::waitForModel(Seconds timeout, std::optional<std::uint64_t> version) {
    return pace_.waitForModel(timeout, version.value_or(0));
}

Statistics Client::statistics() const {
    const DecisionStatistics decisions = pace_.statistics();
    return {.decisions = decisions.decisions,
            .fallbackDecisions = decisions.fallbackDecisions,
            .version = version(),
            .versionsAdopted = decisions.versionsAdopted,
            .stepsSent = link_.stepsSent(),
            .stepsAcknowledged = outbox_.acknowledgedSteps(),
            .stepsWaiting = outbox_.waitingSteps(),
            .droppedSteps = outbox_.droppedSteps(),
            .lateRewards = decisions.lateRewards,
            .trajectoriesRefused = link_.trajectoriesRefused(),
            .connected = link_.connected() && isOwnedByThisProcess(),
            .lastProblem = link_.lastProblem()};
}

void Client::close() {
    if (!isOwnedByThisProcess()) return;
    const std::lock_guard lock(closeMutex_);
    if (closed_.exchange(true)) return;
    episodes_.submitAll();
    if (link_.connected()) link_.flush(Seconds(config_.flushSeconds));
    link_.close();
}

void Client::abandonEpisode(RL4SysTrajectory& trajectory, std::span<const float> row, std::span<const bool> mask) {
    Episode* episode = std::exchange(trajectory.episode_, nullptr);
    if (episode != nullptr) episodes_.abandon(*episode, row, mask);
}

/// Bind the trajectory to this client. An episode of another client is abandoned.
void Client::attach(RL4SysTrajectory& trajectory) {
    if (trajectory.client_.get() == this) return;
    trajectory = RL4SysTrajectory();
    trajectory.client_ = shared_from_this();
    const bool discrete = config_.spec.actionCount > 0;
    trajectory.acts_.resize(discrete ? config_.spec.actionSize() : 0);
    trajectory.values_.resize(discrete ? 0 : config_.spec.actionSize());
}

void Client::checkSizes(std::span<const float> observation, std::span<const bool> mask) const {
    const Spec& spec = config_.spec;
    if (observation.size() != spec.inputSize()) {
        throw std::invalid_argument("the observation has " + std::to_string(observation.size()) +
                                    " elements; expected " + std::to_string(spec.inputSize()));
    }
    if (mask.empty()) return;
    if (!spec.masked()) {
        throw std::invalid_argument("a mask was given, but the config does not set mask: true");
    }
    if (mask.size() != spec.actionCount) {
        throw std::invalid_argument("the mask has " + std::to_string(mask.size()) + " elements; expected " +
                                    std::to_string(spec.actionCount));
    }
    if (!spec.hasLegalAction(mask)) {
        throw std::invalid_argument(
            "the mask allows no action; at least one must be legal, in each dimension of a MultiDiscrete action");
    }
}

}  // namespace rl4sys::client
