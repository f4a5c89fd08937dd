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

/// Fragments are cut before they grow beyond it, so that no message, and no copy of one, is large.
constexpr std::size_t fragmentBytes = 4 << 20;

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

/// What the program's own log gets; a host must not fail because its log does.
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

Identity makeIdentity(const Settings& settings) {
    Identity identity{.hello = {}, .spec = settings.spec, .spools = {}};
    v1::Hello& hello = identity.hello;
    hello.set_protocol(protocol);
    hello.set_client_id(settings.clientId);
    hello.set_instance(randomNumber());
    hello.set_policy_id(settings.policyId);
    hello.set_spec(settings.spec.toJson().dump());
    hello.set_settings(settings.learnerSettings);
    if (settings.pinVersion) hello.set_pinned_version(*settings.pinVersion);
    hello.set_remote(settings.remote);
    std::filesystem::path home = settings.outbox.spool;
    if (home.empty()) {
        std::error_code none;
        home = std::filesystem::temp_directory_path(none) / ("rl4sys-" + std::to_string(::getuid()));
    }
    identity.spools = home / settings.clientId;
    return identity;
}

std::unique_ptr<Spool> makeSpool(const Settings& settings, const Identity& identity) {
    char name[17];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(identity.hello.instance()));
    return std::make_unique<Spool>(identity.spools / name, settings.outbox.spoolBytes,
                                   identity.hello.SerializeAsString());
}

std::size_t longestFragment(const Settings& settings, const Layout& layout) {
    return std::min(settings.maxTrajLength, std::max<std::size_t>(1, fragmentBytes / layout.stepBytes()));
}

/// The bytes of a column that holds exactly `count` numbers of type T, copied to `values`; whether it does.
template <typename T>
bool readColumn(const v1::Column& column, v1::DType dtype, std::span<T> values) {
    if (column.dtype() != dtype || column.values().size() != values.size_bytes()) return false;
    std::memcpy(values.data(), column.values().data(), values.size_bytes());
    return true;
}

}  // namespace

Client::Client(Settings settings, AgentOptions options)
    : settings_(std::move(settings)), log_(makeLog(options)), layout_(settings_.spec),
      fallback_(settings_, options), draws_(settings_.seed ? drawsKey(*settings_.seed) : randomNumber()),
      pace_(longestFragment(settings_, layout_), settings_.maxStaleness), identity_(makeIdentity(settings_)),
      outbox_(settings_.outbox.memoryBytes, makeSpool(settings_, identity_),
              [this](const Shipment& shipment) { return layout_.encode(shipment); }, log_),
      link_(identity_, grpcStreams(settings_.server), outbox_, pace_, settings_.sendFrequency, log_),
      episodes_(settings_.spec, pace_, outbox_, [this] { link_.wake(); },
                Seconds(settings_.remote ? 0.0 : settings_.patienceSeconds), log_) {}

Client::~Client() { close(); }

std::shared_ptr<Client> Client::make(Settings settings, const AgentOptions& options) {
    const auto letGo = [](Client* client) {
        if (client->isOfThisProcess()) delete client;
    };
    return std::shared_ptr<Client>(new Client(std::move(settings), options), letGo);
}

bool Client::isOfThisProcess() const noexcept { return process_ == ::getpid(); }

void Client::start() {
    link_.start();
    link_.waitUntilAnswered(Seconds(settings_.server.timeoutSeconds), !settings_.remote);
    if (const std::string refusal = link_.refusal(); !refusal.empty()) {
        close();
        throw ConfigError(refusal);
    }
    const std::string place = "the training server at " + settings_.server.address;
    if (!link_.connected()) {
        std::string why = link_.lastProblem();
        if (!settings_.server.tls && why.find("Socket closed") != why.npos) why += "; if it uses TLS, see server.tls";
        log_(LogLevel::warning, place + " is away (" + (why.empty() ? "no answer yet" : why) + "); going on without");
    } else if (!settings_.remote && !pace_.hasModel()) {
        log_(LogLevel::warning, place + " has no model yet; going on without");
    }
}

RL4SysAction Client::decide(RL4SysTrajectory& trajectory, std::span<const float> observation,
                            std::span<const bool> mask) {
    RL4SysAction action;
    if (trajectory.episode_ != nullptr && trajectory.client_.get() == this &&
        decideOn(trajectory, observation, mask, action)) {
        return action;
    }
    return decideSlowly(trajectory, observation, mask);
}

/// A decision of the present fragment; false if there is none, be it that the fragment is full or for another reason.
bool Client::decideOn(RL4SysTrajectory& trajectory, std::span<const float> observation, std::span<const bool> mask,
                      RL4SysAction& action) {
    Episode& episode = *trajectory.episode_;
    if (episode.model == nullptr || episode.model->program == nullptr) return false;
    const Program& program = *episode.model->program;
    if (settings_.spec.choices > 0) {
        const std::optional<float> logProb =
            episode.recorder.decide(program, observation, mask, draws_, episode.scratch, trajectory.choices_);
        if (!logProb) return false;
        giveChoices(trajectory, action);
        makeDecided(trajectory, *logProb, action);
        return true;
    }
    if (!mask.empty()) episode.recorder.expectMasked();
    const std::optional<float> logProb =
        episode.recorder.decide(program, observation, draws_, episode.scratch, trajectory.values_);
    if (!logProb) return false;
    legalize(settings_.spec.action, trajectory.values_, trajectory.values_);
    action.values_ = trajectory.values_;
    makeDecided(trajectory, *logProb, action);
    return true;
}

void Client::giveChoices(const RL4SysTrajectory& trajectory, RL4SysAction& action) const noexcept {
    if (settings_.spec.several.empty()) {
        action.act_ = trajectory.choices_.front();
    } else {
        action.choices_ = trajectory.choices_;
    }
}

/// The decision is the latest of its episode, to be added or not.
void Client::makeDecided(RL4SysTrajectory& trajectory, float logProb, RL4SysAction& action) {
    Episode& episode = *trajectory.episode_;
    episode.pending = true;
    action.client_ = this;
    action.episode_ = &episode;
    action.episodeNumber_ = episode.number.load(std::memory_order_relaxed);
    action.decision_ = ++episode.decisions;
    action.version_ = episode.version;
    action.logProb_ = logProb;
}

/// The decision where something else comes with it: a beginning, a cut, or a reason against it.
RL4SysAction Client::decideSlowly(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask) {
    expectFit(observation, mask);
    adoptHandle(trajectory);
    if (!detail::allFinite(observation)) {
        breakOff(trajectory);
        return fallBack(trajectory, observation, mask, "the observation has a NaN or an infinity");
    }
    if (settings_.remote) return decideRemotely(trajectory, observation, mask);
    if (!pace_.hasModel()) return fallBack(trajectory, observation, mask, "no model has arrived yet");
    if (trajectory.episode_ == nullptr) trajectory.episode_ = &episodes_.begin();
    RL4SysAction action;
    while (!decideOn(trajectory, observation, mask, action)) {
        if (!trajectory.episode_->isFull()) {
            breakOff(trajectory, observation, mask);
            return fallBack(trajectory, observation, mask, "the policy gave NaN");
        }
        // It has come to its end, or another thread or a newer model has just asked for a cut.
        episodes_.goOn(*trajectory.episode_, observation, mask);
    }
    return action;
}

RL4SysAction Client::decideRemotely(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                    std::span<const bool> mask) {
    v1::ActReply reply;
    std::string_view wrong;
    const Spec& spec = settings_.spec;
    const std::string problem = ask(observation, mask, reply);
    if (!problem.empty()) {
        wrong = problem;
    } else if (spec.choices > 0) {
        const bool readable = readColumn(reply.action(), v1::DTYPE_INT64, std::span(trajectory.choices_));
        if (!readable || !spec.allows(trajectory.choices_, mask)) wrong = "the server's choice is not legal";
    } else if (!readColumn(reply.action(), v1::DTYPE_FLOAT32, std::span(trajectory.values_)) ||
               !detail::allFinite(trajectory.values_)) {
        wrong = "the server's decision cannot be read";
    }
    if (wrong.empty() && !std::isfinite(reply.log_prob())) wrong = "the server's decision has a NaN or an infinity";
    if (!wrong.empty()) {
        breakOff(trajectory, observation, mask);
        return fallBack(trajectory, observation, mask, wrong);
    }
    return recordRemote(trajectory, observation, mask, reply);
}

RL4SysAction Client::recordRemote(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask, const v1::ActReply& reply) {
    Model model;
    model.lineage = reply.lineage();
    model.version = reply.version();
    model.wants = reply.wants() > 0 ? reply.wants() : endless;
    model.taken = endless;
    if (pace_.isNews(model)) pace_.publish(std::make_shared<const Model>(model));
    if (trajectory.episode_ == nullptr) {
        trajectory.episode_ = &episodes_.begin();
    } else if (trajectory.episode_->version != model.version) {
        episodes_.cut(*trajectory.episode_, observation, mask);
    } else if (trajectory.episode_->isFull()) {
        episodes_.goOn(*trajectory.episode_, observation, mask);
    }
    Episode& episode = *trajectory.episode_;
    // Another thread may have been answered by a newer version meanwhile.
    episode.version = model.version;
    RL4SysAction action;
    if (settings_.spec.choices > 0) {
        episode.recorder.pend(observation, mask, trajectory.choices_, reply.log_prob());
        giveChoices(trajectory, action);
    } else {
        episode.recorder.pend(observation, std::span<const float>(trajectory.values_), reply.log_prob());
        legalize(settings_.spec.action, trajectory.values_, trajectory.values_);
        action.values_ = trajectory.values_;
    }
    makeDecided(trajectory, reply.log_prob(), action);
    return action;
}

std::string Client::ask(std::span<const float> observation, std::span<const bool> mask, v1::ActReply& reply) {
    // One at a time: where the draws stand is known only when the server has answered.
    const std::lock_guard lock(asking_);
    v1::ActRequest request;
    request.set_client_id(settings_.clientId);
    request.set_policy_id(settings_.policyId);
    layout_.writeObservation(observation, mask, request);
    request.set_draws_key(draws_.state().key);
    request.set_draws_counter(draws_.state().counter);
    std::string problem = link_.act(request, Seconds(settings_.server.actTimeoutSeconds), reply);
    if (problem.empty()) draws_.goOnFrom(reply.draws_counter());
    return problem;
}

RL4SysAction Client::fallBack(RL4SysTrajectory& trajectory, std::span<const float> observation,
                              std::span<const bool> mask, std::string_view reason) {
    RL4SysAction action;
    trajectory.reason_ = reason;
    if (settings_.spec.choices > 0) {
        fallback_.choose(observation, mask, trajectory.choices_, trajectory.reason_);
        giveChoices(trajectory, action);
    } else {
        fallback_.move(observation, trajectory.values_, trajectory.reason_);
        action.values_ = trajectory.values_;
    }
    pace_.countFallback();
    action.reason_ = trajectory.reason_;
    return action;
}

void Client::add(RL4SysTrajectory& trajectory, RL4SysAction& action) {
    Episode* episode = action.episode_;
    if (episode == nullptr || action.step_ != RL4SysAction::unadded) return;
    if (action.client_ != this || (trajectory.episode_ != episode && !closed_)) {
        throw std::invalid_argument("this decision was made by another agent, or for another trajectory");
    }
    const bool current = episode->number.load(std::memory_order_relaxed) == action.episodeNumber_;
    if (!current || !episode->pending || episode->decisions != action.decision_) {
        if (closed_) return;
        throw std::invalid_argument(
            "this decision is not the latest of its trajectory; add each action before the next is requested");
    }
    episode->pending = false;
    action.step_ = episode->recorder.commit();
    if (action.reward_) episode->recorder.reward(action.step_, *action.reward_);
}

void Client::end(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end) {
    expectEnd(trajectory, action, end);
    add(trajectory, action);
    Episode* episode = std::exchange(trajectory.episode_, nullptr);
    if (episode == nullptr) return;
    const bool known = detail::allFinite(end.finalObservation);
    episodes_.end(*episode, known ? end.finalObservation : std::span<const float>(),
                  known ? end.finalMask : std::span<const bool>(), end.truncated);
}

/// Before anything is changed, so that a mistake loses nothing.
void Client::expectEnd(const RL4SysTrajectory& trajectory, const RL4SysAction& action,
                       const TrajectoryEnd& end) const {
    const bool others = trajectory.client_ != nullptr && trajectory.client_.get() != this;
    if (others || (action.client_ != nullptr && action.client_ != this)) {
        throw std::invalid_argument("the trajectory, or the decision, is another agent's");
    }
    const bool differ = action.episode_ != nullptr && action.episode_ != trajectory.episode_;
    if (trajectory.episode_ != nullptr && differ && !closed_) {
        throw std::invalid_argument("the decision is of another trajectory than the one that is to end with it");
    }
    if (!end.finalObservation.empty()) {
        expectFit(end.finalObservation, end.finalMask);
    } else if (!end.finalMask.empty()) {
        throw std::invalid_argument("a final mask was given without the observation it belongs to");
    }
}

void Client::abandon(Episode& episode) {
    if (isOfThisProcess()) episodes_.breakOff(episode);
}

void Client::reward(RL4SysAction& action, double reward) {
    if (!std::isfinite(static_cast<float>(reward))) {
        throw std::domain_error("a reward is a finite float32; what was given is not");
    }
    if (action.step_ != RL4SysAction::unadded) {
        const bool current = action.episode_->number.load(std::memory_order_relaxed) == action.episodeNumber_;
        if (!current || !action.episode_->recorder.reward(action.step_, reward)) {
            action.client_->episodes_.noteLateReward();
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
    const Figures figures = pace_.figures();
    return {.decisions = figures.decisions,
            .fallbackDecisions = figures.fallbackDecisions,
            .version = version(),
            .versionsAdopted = figures.versionsAdopted,
            .stepsSent = link_.stepsSent(),
            .stepsAcknowledged = outbox_.acknowledgedSteps(),
            .stepsWaiting = outbox_.waitingSteps(),
            .droppedSteps = outbox_.droppedSteps(),
            .lateRewards = figures.lateRewards,
            .trajectoriesRefused = link_.trajectoriesRefused(),
            .connected = link_.connected() && isOfThisProcess(),
            .lastProblem = link_.lastProblem()};
}

void Client::close() {
    if (!isOfThisProcess()) return;
    const std::lock_guard lock(closing_);
    if (closed_.exchange(true)) return;
    episodes_.handOver();
    if (link_.connected()) link_.flush(Seconds(settings_.flushSeconds));
    link_.close();
}

void Client::breakOff(RL4SysTrajectory& trajectory, std::span<const float> row, std::span<const bool> mask) {
    Episode* episode = std::exchange(trajectory.episode_, nullptr);
    if (episode != nullptr) episodes_.breakOff(*episode, row, mask);
}

/// Make the handle one of this client's; what it may have had with another ends.
void Client::adoptHandle(RL4SysTrajectory& trajectory) {
    if (trajectory.client_.get() == this) return;
    trajectory = RL4SysTrajectory();
    trajectory.client_ = shared_from_this();
    const bool chooses = settings_.spec.choices > 0;
    trajectory.choices_.resize(chooses ? settings_.spec.actionSize() : 0);
    trajectory.values_.resize(chooses ? 0 : settings_.spec.actionSize());
}

void Client::expectFit(std::span<const float> observation, std::span<const bool> mask) const {
    const Spec& spec = settings_.spec;
    if (observation.size() != spec.inputSize()) {
        throw std::invalid_argument("an observation of " + std::to_string(observation.size()) +
                                    " numbers was given; expected " + std::to_string(spec.inputSize()));
    }
    if (mask.empty()) return;
    if (!spec.masked()) {
        throw std::invalid_argument("a mask was given, but the config does not say `mask: true`");
    }
    if (mask.size() != spec.choices) {
        throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                    std::to_string(spec.choices));
    }
    if (!spec.leavesChoice(mask)) {
        throw std::invalid_argument("the mask allows no action at all; at least one choice of each part must be legal");
    }
}

}  // namespace rl4sys::client
