#include "rl4sys/agent.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "scratch_directory.hpp"
#include "scripted_server.hpp"
#include "snapshot.hpp"

namespace rl4sys::client {
namespace {

using Json = nlohmann::json;

const std::array<float, 8> observation{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, -0.6f, 0.7f, -0.8f};
const std::chrono::seconds patience(20);

/// Agents for the golden models. By default: two observations with 8 elements in total, and 4 discrete actions.
class AgentTest : public testing::Test {
protected:
    RL4SysAgent makeAgent(const std::string& address, const Json& changes = Json::object(), AgentOptions options = {}) {
        Json config{{"version", 1},
                    {"client_id", "system"},
                    {"observation", {{"grid", {2, 1}}, {"state", 6}}},
                    {"action", 4},
                    {"server", {{"address", address}, {"timeout_seconds", 20}, {"act_timeout_seconds", 20}}},
                    {"outbox", {{"spool", (directory_.path() / "spool").string()}}}};
        config.merge_patch(changes);
        const std::filesystem::path path = directory_.path() / "client.json";
        std::ofstream(path) << config;
        if (!options.log) {
            options.log = [this](LogLevel, std::string_view message) {
                const std::lock_guard lock(mutex_);
                logged_.emplace_back(message);
            };
        }
        return RL4SysAgent(path, options);
    }

    std::vector<std::string> logged() {
        const std::lock_guard lock(mutex_);
        return logged_;
    }

    static RL4SysAction step(RL4SysAgent& agent, RL4SysTrajectory& trajectory, double reward = 1.0) {
        RL4SysAction action = agent.requestForAction(trajectory, observation);
        agent.addToTrajectory(trajectory, action);
        action.updateReward(reward);
        return action;
    }

    static void episode(RL4SysAgent& agent, RL4SysTrajectory& trajectory, int steps) {
        RL4SysAction action;
        for (int i = 0; i < steps; ++i) action = step(agent, trajectory);
        agent.markEndOfTrajectory(trajectory, action);
    }

    ScratchDirectory directory_;

private:
    std::mutex mutex_;
    std::vector<std::string> logged_;
};

template <typename T>
std::vector<T> valuesOf(const v1::Trajectory& trajectory, const std::string& name) {
    const v1::Column& column = ScriptedServer::column(trajectory, name);
    std::vector<T> values(column.values().size() / sizeof(T));
    std::memcpy(values.data(), column.values().data(), column.values().size());
    return values;
}

TEST_F(AgentTest, DecidesWithTheModelAndSendsTheTrajectory) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    std::vector<std::int64_t> acts;
    std::vector<float> logProbs;
    RL4SysAction action;
    for (int i = 0; i < 5; ++i) {
        action = step(agent, trajectory, i);
        acts.push_back(action.act());
        logProbs.push_back(action.logProb().value());
        EXPECT_EQ(action.version(), 1u);
        EXPECT_TRUE(action.fallbackReason().empty());
    }
    EXPECT_EQ(trajectory.steps(), 5u);
    agent.markEndOfTrajectory(trajectory, action);
    EXPECT_FALSE(trajectory.running());
    ASSERT_TRUE(agent.flush(patience));
    const v1::Trajectory sent = server.received().at(0);
    EXPECT_EQ(sent.sequence(), 1u);
    EXPECT_EQ(sent.version(), 1u);
    EXPECT_TRUE(sent.terminated());
    EXPECT_FALSE(sent.truncated());
    EXPECT_EQ(valuesOf<std::int64_t>(sent, "action"), acts);
    EXPECT_EQ(valuesOf<float>(sent, "log_prob"), logProbs);
    EXPECT_EQ(valuesOf<float>(sent, "reward"), (std::vector<float>{0, 1, 2, 3, 4}));
    EXPECT_EQ(ScriptedServer::column(sent, "obs.state").shape(0), 6u);
    EXPECT_EQ(agent.statistics().stepsAcknowledged, 5u);
}

TEST_F(AgentTest, KeepsTheRecurrentStateAcrossCutsAndSendsItWithEachRecording) {
    ScriptedServer server("gru.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"max_traj_length", 3}});
    RL4SysTrajectory trajectory;
    episode(agent, trajectory, 8);
    episode(agent, trajectory, 1);
    ASSERT_TRUE(agent.flush(patience));
    const auto program = Snapshot::fromBytes(goldenFile("gru.safetensors")).program;
    std::vector<float> memory(program->memorySize());
    ASSERT_EQ(memory.size(), 10u);
    Scratch scratch;
    Draws draws;
    std::size_t steps = 0;
    for (const v1::Trajectory& sent : server.received()) {
        if (sent.offset() == 0) std::ranges::fill(memory, 0.0f);
        const v1::Column& column = ScriptedServer::column(sent, "memory");
        EXPECT_EQ(column.dtype(), v1::DTYPE_FLOAT32);
        EXPECT_EQ(std::vector<std::uint64_t>(column.shape().begin(), column.shape().end()),
                  (std::vector<std::uint64_t>{1, 10}));
        EXPECT_EQ(valuesOf<float>(sent, "memory"), memory) << "at step " << sent.offset();
        const std::size_t length = valuesOf<float>(sent, "reward").size();
        for (std::size_t i = 0; i < length; ++i) program->decide(observation, {}, draws, scratch, memory);
        steps += length;
    }
    EXPECT_EQ(steps, 9u);
    EXPECT_EQ(server.received().size(), 4u);
}

TEST_F(AgentTest, SendsNoRecurrentStateForAStatelessPolicy) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    episode(agent, trajectory, 2);
    ASSERT_TRUE(agent.flush(patience));
    EXPECT_THROW(ScriptedServer::column(server.received().at(0), "memory"), std::runtime_error);
}

TEST_F(AgentTest, RecurrentPolicyWithRemoteInferenceUsesTheFallback) {
    ScriptedServer server;
    server.setActHandler([](const v1::ActRequest&, v1::ActReply&) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the policy has memory: set inference to local");
    });
    RL4SysAgent agent = makeAgent(server.address(), {{"inference", "remote"}});
    RL4SysTrajectory trajectory;
    const RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_NE(std::string(action.fallbackReason()).find("set inference to local"), std::string::npos)
        << action.fallbackReason();
}

TEST_F(AgentTest, SameSeedGivesSameActions) {
    ScriptedServer server;
    const auto actsOf = [&](std::uint64_t seed) {
        RL4SysAgent agent = makeAgent(server.address(), {{"seed", seed}});
        RL4SysTrajectory trajectory;
        std::vector<std::int64_t> acts;
        for (int i = 0; i < 100; ++i) acts.push_back(step(agent, trajectory).act());
        return acts;
    };
    const std::vector<std::int64_t> acts = actsOf(7);
    EXPECT_EQ(actsOf(7), acts);
    EXPECT_NE(actsOf(8), acts);
    EXPECT_EQ(std::set<std::int64_t>(acts.begin(), acts.end()).size(), 4u);
}

TEST_F(AgentTest, UsesTheFallbackIfTheServerIsUnreachable) {
    AgentOptions options;
    options.fallbackAct = [](std::span<const float>, std::span<const bool>) { return 3; };
    RL4SysAgent agent = makeAgent("127.0.0.1:9", {{"server", {{"timeout_seconds", 0.01}}}}, options);
    RL4SysTrajectory trajectory;
    RL4SysAction action = step(agent, trajectory);
    EXPECT_EQ(action.act(), 3);
    EXPECT_EQ(action.fallbackReason(), "no model has arrived yet");
    EXPECT_EQ(action.version(), std::nullopt);
    EXPECT_EQ(action.reward(), 1.0);
    agent.markEndOfTrajectory(trajectory, action);
    EXPECT_EQ(agent.statistics().fallbackDecisions, 1u);
    ASSERT_FALSE(logged().empty());
    EXPECT_NE(logged().front().find("continuing with the fallback action"), std::string::npos);
}

TEST_F(AgentTest, IllegalOrFailingFallbackFunctionIsReplacedByTheConfiguredAction) {
    AgentOptions options;
    options.fallbackAct = [](std::span<const float> row, std::span<const bool>) -> std::int64_t {
        if (row[0] > 0) throw std::runtime_error("it broke");
        return 99;
    };
    RL4SysAgent agent = makeAgent("127.0.0.1:9",
                                  {{"server", {{"timeout_seconds", 0.01}}}, {"mask", true}, {"fallback_action", 2}},
                                  options);
    RL4SysTrajectory trajectory;
    const bool mask[] = {false, true, false, true};
    RL4SysAction action = agent.requestForAction(trajectory, observation, mask);
    EXPECT_EQ(action.act(), 1);
    EXPECT_NE(action.fallbackReason().find("it broke"), std::string_view::npos);
    const std::array<float, 8> zeros{};
    action = agent.requestForAction(trajectory, zeros);
    EXPECT_EQ(action.act(), 2);
    EXPECT_NE(action.fallbackReason().find("99 is not legal"), std::string_view::npos);
}

TEST_F(AgentTest, ModelThatArrivesAfterConstructionIsUsed) {
    ScriptedServer server;
    server.stop();
    RL4SysAgent agent = makeAgent(server.address(), {{"server", {{"timeout_seconds", 0.01}}}});
    RL4SysTrajectory trajectory;
    EXPECT_FALSE(step(agent, trajectory).fallbackReason().empty());
    server.start();
    ASSERT_TRUE(agent.waitForModel(patience));
    EXPECT_EQ(step(agent, trajectory).version(), 1u);
}

TEST_F(AgentTest, NewerVersionCutsTheTrajectory) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 10; ++i) step(agent, trajectory);
    server.publish(2);
    ASSERT_TRUE(agent.waitForModel(patience, 2));
    // The cut is delayed by some steps if another thread holds the lock.
    RL4SysAction action = step(agent, trajectory);
    std::size_t before = 10;
    for (; action.version() != 2u && before < 1000; ++before) action = step(agent, trajectory);
    for (int i = 0; i < 5; ++i) action = step(agent, trajectory);
    agent.markEndOfTrajectory(trajectory, action, {.truncated = true, .finalObservation = observation});
    ASSERT_TRUE(agent.flush(patience));
    const auto received = server.received();
    ASSERT_EQ(received.size(), 2u);
    EXPECT_EQ(received[0].version(), 1u);
    EXPECT_FALSE(received[0].terminated() || received[0].truncated());
    EXPECT_EQ(received[1].version(), 2u);
    EXPECT_EQ(received[1].offset(), before);
    EXPECT_EQ(received[1].episode(), received[0].episode());
    EXPECT_TRUE(received[1].truncated());
    EXPECT_EQ(valuesOf<float>(received[1], "reward").size(), 6u);
}

TEST_F(AgentTest, TrajectoryIsCutWhenAnUpdateIsDue) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 250; ++i) step(agent, trajectory);
    ASSERT_TRUE(server.waitForSteps(200));
    for (const v1::Trajectory& sent : server.received()) EXPECT_EQ(valuesOf<float>(sent, "reward").size(), 100u);
}

TEST_F(AgentTest, EpisodeIsNotCutWhileRewardsAreMissing) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    std::vector<RL4SysAction> actions;
    for (int i = 0; i < 150; ++i) {
        actions.push_back(agent.requestForAction(trajectory, observation));
        agent.addToTrajectory(trajectory, actions.back());
    }
    for (int i = 0; i < 150; ++i) actions[static_cast<std::size_t>(i)].updateReward(i);
    step(agent, trajectory);
    ASSERT_TRUE(server.waitForSteps(150));
    EXPECT_EQ(valuesOf<float>(server.received().at(0), "reward").back(), 149.0f);
    actions.front().updateReward(5.0);
    EXPECT_EQ(agent.statistics().lateRewards, 1u);
}

TEST_F(AgentTest, MaskedActionsAreNeverSelected) {
    ScriptedServer server("categorical_masked.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"action", 7}, {"mask", true}});
    RL4SysTrajectory trajectory;
    for (std::size_t legal = 0; legal < 7; ++legal) {
        std::array<bool, 7> mask{};
        mask[legal] = true;
        for (int i = 0; i < 20; ++i) {
            RL4SysAction action = agent.requestForAction(trajectory, observation, mask);
            EXPECT_EQ(action.act(), static_cast<std::int64_t>(legal));
            agent.addToTrajectory(trajectory, action);
        }
    }
    EXPECT_THROW(agent.requestForAction(trajectory, observation, std::array<bool, 7>{}), std::invalid_argument);
}

TEST_F(AgentTest, MultiDiscreteActionsAreLegalAndSent) {
    ScriptedServer server("multi_categorical_masked.safetensors");
    // With a random seed, one run in a hundred never selects the less likely action of the second dimension.
    RL4SysAgent agent = makeAgent(server.address(), {{"action", {2, 5}}, {"mask", true}, {"seed", 1}});
    RL4SysTrajectory trajectory;
    std::vector<std::int64_t> made;
    RL4SysAction action;
    for (std::size_t i = 0; i < 40; ++i) {
        // One action is legal in the first dimension, and one or two in the second.
        const std::array<bool, 7> mask{i % 2 == 0, i % 2 == 1, true, false, false, i % 5 > 0, false};
        action = agent.requestForAction(trajectory, observation, mask);
        ASSERT_EQ(action.acts().size(), 2u);
        EXPECT_EQ(action.acts()[0], static_cast<std::int64_t>(i % 2));
        EXPECT_TRUE(mask[2 + static_cast<std::size_t>(action.acts()[1])]);
        made.insert(made.end(), action.acts().begin(), action.acts().end());
        agent.addToTrajectory(trajectory, action);
    }
    EXPECT_GT(std::set<std::int64_t>(made.begin(), made.end()).size(), 2u);
    const std::array<bool, 7> blocking{true, true};
    EXPECT_THROW(agent.requestForAction(trajectory, observation, blocking), std::invalid_argument);
    agent.markEndOfTrajectory(trajectory, action);
    ASSERT_TRUE(agent.flush(patience));
    const v1::Trajectory sent = server.received().at(0);
    EXPECT_EQ(valuesOf<std::int64_t>(sent, "action"), made);
    EXPECT_EQ(ScriptedServer::column(sent, "action").shape(1), 2u);
    EXPECT_EQ(ScriptedServer::column(sent, "obs.mask").shape(1), 7u);
}

TEST_F(AgentTest, ModelWithAnotherActionSpaceIsNotUsed) {
    ScriptedServer server("multi_categorical.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"action", {1, 3, 4}}, {"server", {{"timeout_seconds", 0.2}}}});
    RL4SysTrajectory trajectory;
    EXPECT_FALSE(step(agent, trajectory).fallbackReason().empty());
    // The constructor may time out before the model arrives, so wait for the error.
    const auto isReported = [&agent] {
        return agent.statistics().lastProblem.find("(3, 1, 4) discrete actions; this client has") != std::string::npos;
    };
    for (int tries = 0; tries < 1000 && !isReported(); ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(isReported()) << agent.statistics().lastProblem;
}

TEST_F(AgentTest, MultiDiscreteFallbackIsLegalInEachDimension) {
    AgentOptions options;
    std::vector<std::int64_t> wanted{1, 4};
    options.fallbackActs = [&](std::span<const float>, std::span<const bool>, std::span<std::int64_t> acts) {
        std::ranges::copy(wanted, acts.begin());
    };
    const Json changes{{"action", {2, 5}},
                       {"mask", true},
                       {"fallback_action", {0, 2}},
                       {"server", {{"timeout_seconds", 0.01}}}};
    RL4SysAgent agent = makeAgent("127.0.0.1:1", changes, options);
    RL4SysTrajectory trajectory;
    const auto chosen = [&](const std::array<bool, 7>& mask) {
        const RL4SysAction action = agent.requestForAction(trajectory, observation, mask);
        EXPECT_FALSE(action.fallbackReason().empty());
        return std::vector(action.acts().begin(), action.acts().end());
    };
    EXPECT_EQ(chosen({true, true, true, true, true, true, true}), (std::vector<std::int64_t>{1, 4}));
    EXPECT_EQ(chosen({true, true, true, true, true, true, false}), (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(chosen({false, true, false, false, false, true, false}), (std::vector<std::int64_t>{1, 3}));
    wanted = {2, 0};
    EXPECT_EQ(chosen({true, true, true, true, true, true, true}), (std::vector<std::int64_t>{0, 2}));
}

TEST_F(AgentTest, NanObservationUsesTheFallbackAndEndsTheTrajectory) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 3; ++i) step(agent, trajectory);
    std::array<float, 8> broken = observation;
    broken[3] = std::numeric_limits<float>::quiet_NaN();
    const RL4SysAction action = agent.requestForAction(trajectory, broken);
    EXPECT_EQ(action.fallbackReason(), "the observation contains NaN or infinity");
    EXPECT_FALSE(trajectory.running());
    ASSERT_TRUE(agent.flush(patience));
    // The outcome of the third action is unknown, so its step is dropped.
    EXPECT_EQ(valuesOf<float>(server.received().at(0), "reward").size(), 2u);
}

TEST_F(AgentTest, InvalidCallsThrowAndDoNotChangeTheTrajectory) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    step(agent, trajectory);
    EXPECT_THROW(agent.requestForAction(trajectory, std::span(observation).first(7)), std::invalid_argument);
    const bool mask[] = {true, true, true, true};
    EXPECT_THROW(agent.requestForAction(trajectory, observation, mask), std::invalid_argument);
    RL4SysAction old = agent.requestForAction(trajectory, observation);
    RL4SysAction latest = agent.requestForAction(trajectory, observation);
    EXPECT_THROW(agent.addToTrajectory(trajectory, old), std::invalid_argument);
    agent.addToTrajectory(trajectory, latest);
    agent.addToTrajectory(trajectory, latest);
    EXPECT_THROW(latest.updateReward(std::nan("")), std::domain_error);
    EXPECT_EQ(trajectory.steps(), 2u);
}

TEST_F(AgentTest, BoxActionsAreWithinBounds) {
    ScriptedServer server("gaussian.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"action", {{"size", 3}, {"low", -0.01}, {"high", 0.01}}}});
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 50; ++i) {
        RL4SysAction action = agent.requestForAction(trajectory, observation);
        agent.addToTrajectory(trajectory, action);
        ASSERT_EQ(action.values().size(), 3u);
        for (const float value : action.values()) EXPECT_LE(std::fabs(value), 0.01f);
    }
}

std::string logicErrorOf(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::logic_error& error) {
        return error.what();
    }
    return "no error";
}

TEST_F(AgentTest, ReadingADiscreteActionAsAnotherKindIsAnError) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    const RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_TRUE(action.fallbackReason().empty());
    EXPECT_GE(action.act(), 0);
    EXPECT_EQ(logicErrorOf([&] { action.acts(); }), "acts() was called on a Discrete action; use act()");
    EXPECT_EQ(logicErrorOf([&] { action.values(); }), "values() was called on a Discrete action; use act()");
}

TEST_F(AgentTest, ReadingAMultiDiscreteActionAsAnotherKindIsAnError) {
    ScriptedServer server("multi_categorical.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"action", {3, 1, 4}}});
    RL4SysTrajectory trajectory;
    const RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_TRUE(action.fallbackReason().empty());
    EXPECT_EQ(action.acts().size(), 3u);
    EXPECT_EQ(logicErrorOf([&] { action.act(); }), "act() was called on a MultiDiscrete action; use acts()");
    EXPECT_EQ(logicErrorOf([&] { action.values(); }), "values() was called on a MultiDiscrete action; use acts()");
}

TEST_F(AgentTest, ReadingABoxActionAsAnotherKindIsAnError) {
    ScriptedServer server("gaussian.safetensors");
    RL4SysAgent agent = makeAgent(server.address(), {{"action", {{"size", 3}}}});
    RL4SysTrajectory trajectory;
    const RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_TRUE(action.fallbackReason().empty());
    EXPECT_EQ(action.values().size(), 3u);
    EXPECT_EQ(logicErrorOf([&] { action.act(); }), "act() was called on a Box action; use values()");
    EXPECT_EQ(logicErrorOf([&] { action.acts(); }), "acts() was called on a Box action; use values()");
}

TEST_F(AgentTest, ReadingAFallbackActionAsAnotherKindIsAnError) {
    const Json unreachable{{"timeout_seconds", 0.01}};
    RL4SysTrajectory trajectory;
    RL4SysAgent box = makeAgent("127.0.0.1:9", {{"action", {{"size", 2}}}, {"server", unreachable}});
    const RL4SysAction values = box.requestForAction(trajectory, observation);
    EXPECT_EQ(values.values().size(), 2u);
    EXPECT_THROW(values.act(), std::logic_error);
    RL4SysAgent discrete = makeAgent("127.0.0.1:9", {{"server", unreachable}});
    const RL4SysAction act = discrete.requestForAction(trajectory, observation);
    EXPECT_EQ(act.act(), 0);
    EXPECT_THROW(act.values(), std::logic_error);
}

TEST_F(AgentTest, ReadingAnEmptyActionIsAnError) {
    const RL4SysAction action;
    EXPECT_EQ(logicErrorOf([&] { action.act(); }),
              "act() was called on an empty action; request one from an agent first");
    EXPECT_THROW(action.acts(), std::logic_error);
    EXPECT_THROW(action.values(), std::logic_error);
}

TEST_F(AgentTest, UnacknowledgedTrajectoriesAreSentAgainAfterReconnect) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    episode(agent, trajectory, 10);
    ASSERT_TRUE(agent.flush(patience));
    server.stop();
    for (int i = 0; i < 20; ++i) episode(agent, trajectory, 10);
    EXPECT_EQ(agent.statistics().fallbackDecisions, 0u);
    server.start();
    ASSERT_TRUE(agent.flush(patience));
    EXPECT_EQ(agent.statistics().stepsAcknowledged, 210u);
    std::set<std::uint64_t> sequences;
    for (const v1::Trajectory& sent : server.received()) sequences.insert(sent.sequence());
    EXPECT_EQ(sequences.size(), 21u);
    EXPECT_EQ(*sequences.rbegin(), 21u);
}

TEST_F(AgentTest, NextInstanceSendsTheSpoolOfThePreviousOne) {
    ScriptedServer server;
    {
        RL4SysAgent agent = makeAgent(server.address());
        server.stop();
        RL4SysTrajectory trajectory;
        for (int i = 0; i < 3; ++i) episode(agent, trajectory, 10);
    }
    server.start();
    RL4SysAgent agent = makeAgent(server.address());
    EXPECT_TRUE(server.waitForSteps(30));
}

TEST_F(AgentTest, RefusalByTheServerThrowsConfigErrorWithItsMessage) {
    ScriptedServer server;
    server.setHelloHandler([](ScriptedServer::Connection& connection, const v1::Hello&) {
        v1::ServerMessage message;
        message.mutable_problem()->set_kind(v1::Problem::REFUSED);
        message.mutable_problem()->set_message("algorithm.lr is -1");
        connection.Write(message);
    });
    try {
        makeAgent(server.address());
        FAIL() << "no ConfigError was thrown";
    } catch (const ConfigError& problem) {
        EXPECT_STREQ(problem.what(), "the server refused this client: algorithm.lr is -1");
    }
}

TEST_F(AgentTest, DamagedModelIsRequestedAgain) {
    ScriptedServer server;
    std::atomic<int> connections = 0;
    server.setHelloHandler([&](ScriptedServer::Connection& connection, const v1::Hello&) {
        server.welcome(connection);
        if (connections++ > 0) return server.sendModel(connection, 1);
        v1::ServerMessage message;
        message.mutable_snapshot()->set_version(1);
        message.mutable_snapshot()->set_full("not a model");
        connection.Write(message);
    });
    RL4SysAgent agent = makeAgent(server.address());
    EXPECT_TRUE(agent.waitForModel(patience));
    EXPECT_GE(connections, 2);
}

TEST_F(AgentTest, ThreadsShareAnAgentWithSeparateTrajectories) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            RL4SysTrajectory trajectory;
            for (int i = 0; i < 100; ++i) episode(agent, trajectory, 20);
        });
    }
    for (std::uint64_t version = 2; version < 40; ++version) server.publish(version);
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(agent.flush(patience));
    const Statistics statistics = agent.statistics();
    EXPECT_EQ(statistics.stepsAcknowledged, 8000u);
    EXPECT_EQ(statistics.decisions, 8000u);
    std::set<std::uint64_t> sequences;
    for (const v1::Trajectory& sent : server.received()) sequences.insert(sent.sequence());
    EXPECT_EQ(sequences.size(), server.received().size());
    EXPECT_EQ(ScriptedServer::stepsOf(server.received()), 8000u);
}

TEST_F(AgentTest, DestroyedTrajectoryIsSentAndTrajectoryCanOutliveItsAgent) {
    ScriptedServer server;
    RL4SysTrajectory outliving;
    {
        RL4SysAgent agent = makeAgent(server.address());
        {
            RL4SysTrajectory dropped;
            for (int i = 0; i < 5; ++i) step(agent, dropped);
        }
        ASSERT_TRUE(server.waitForSteps(4));
        step(agent, outliving);
    }
    EXPECT_TRUE(outliving.running());
}

TEST_F(AgentTest, DecidesAfterCloseWithoutRecording) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 5; ++i) step(agent, trajectory);
    agent.close();
    EXPECT_EQ(ScriptedServer::stepsOf(server.received()), 4u);
    EXPECT_EQ(step(agent, trajectory).version(), 1u);
    EXPECT_EQ(ScriptedServer::stepsOf(server.received()), 4u);
}

TEST_F(AgentTest, FastHostDoesNotPreventSending) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address(), {{"outbox", {{"spool_bytes", 0}}}});
    RL4SysTrajectory trajectory;
    std::uint64_t steps = 0;
    while (agent.statistics().stepsAcknowledged < 1000) {
        ASSERT_LT(steps, 10'000'000u) << "nothing is sent while the host is busy";
        for (int i = 0; i < 1000; ++i) episode(agent, trajectory, 1);
        steps += 1000;
    }
    const Statistics statistics = agent.statistics();
    EXPECT_LE(statistics.stepsAcknowledged + statistics.droppedSteps, statistics.decisions);
}

TEST_F(AgentTest, LogCallbackMayReadStatistics) {
    ScriptedServer server;
    RL4SysAgent* observed = nullptr;
    int calls = 0;
    AgentOptions options;
    options.log = [&](LogLevel, std::string_view) {
        if (observed != nullptr) calls += observed->statistics().connected ? 1 : 0;
    };
    RL4SysAgent agent = makeAgent(server.address(), {{"patience_seconds", 0.001}, {"max_staleness", 0}}, options);
    observed = &agent;
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 300; ++i) step(agent, trajectory);
    EXPECT_GT(calls, 0);
    agent.close();
    observed = nullptr;
}

TEST_F(AgentTest, ActionIsReturnedEvenIfCallbacksThrow) {
    AgentOptions options;
    options.fallbackAct = [](std::span<const float>, std::span<const bool>) -> std::int64_t { throw 1; };
    options.log = [](LogLevel, std::string_view) { throw 2; };
    RL4SysAgent agent = makeAgent("127.0.0.1:9", {{"server", {{"timeout_seconds", 0.01}}}}, options);
    RL4SysTrajectory trajectory;
    const RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_EQ(action.act(), 0);
    EXPECT_NE(action.fallbackReason().find("the fallback function failed"), std::string_view::npos);
}

TEST_F(AgentTest, TrajectoryCanOnlyBeChangedByItsOwnAgent) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysAgent other = makeAgent(server.address(), {{"client_id", "other"}});
    RL4SysTrajectory trajectory;
    RL4SysTrajectory otherTrajectory;
    RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_THROW(other.addToTrajectory(trajectory, action), std::invalid_argument);
    EXPECT_THROW(other.markEndOfTrajectory(trajectory, action), std::invalid_argument);
    EXPECT_THROW(agent.addToTrajectory(otherTrajectory, action), std::invalid_argument);
    RL4SysAction otherAction = step(agent, otherTrajectory);
    EXPECT_THROW(agent.markEndOfTrajectory(trajectory, otherAction), std::invalid_argument);
    EXPECT_TRUE(trajectory.running());
    EXPECT_TRUE(otherTrajectory.running());
    agent.markEndOfTrajectory(trajectory, action);
    agent.markEndOfTrajectory(otherTrajectory, otherAction);
    agent.markEndOfTrajectory(otherTrajectory, otherAction);
    EXPECT_TRUE(agent.flush(patience));
    EXPECT_EQ(agent.statistics().stepsAcknowledged, 2u);
}

TEST_F(AgentTest, InvalidEndOfATrajectoryIsRejectedWithoutLosingSteps) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    for (int i = 0; i < 3; ++i) step(agent, trajectory);
    RL4SysAction action = step(agent, trajectory);
    const bool mask[] = {true, true, true, true};
    EXPECT_THROW(agent.markEndOfTrajectory(trajectory, action, {.finalMask = mask}), std::invalid_argument);
    EXPECT_THROW(agent.markEndOfTrajectory(trajectory, action, {.finalObservation = std::span(observation).first(2)}),
                 std::invalid_argument);
    agent.markEndOfTrajectory(trajectory, action);
    ASSERT_TRUE(agent.flush(patience));
    EXPECT_EQ(agent.statistics().stepsAcknowledged, 4u);
}

TEST_F(AgentTest, RewardsOutOfTheRangeOfFloatAreRejected) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    RL4SysAction action = agent.requestForAction(trajectory, observation);
    EXPECT_THROW(action.updateReward(1e300), std::domain_error);
    agent.addToTrajectory(trajectory, action);
    EXPECT_THROW(action.updateReward(-1e300), std::domain_error);
    action.updateReward(3e38);
    EXPECT_EQ(action.reward(), 3e38);
}

TEST_F(AgentTest, RewardsAfterCloseAreCountedAsLate) {
    ScriptedServer server;
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    RL4SysAction action = step(agent, trajectory);
    agent.close();
    action.updateReward(2.0);
    EXPECT_EQ(agent.statistics().lateRewards, 1u);
}

TEST_F(AgentTest, ForkedChildDoesNotUseTheConnection) {
    ScriptedServer server;
    auto agent = std::make_unique<RL4SysAgent>(makeAgent(server.address()));
    auto trajectory = std::make_unique<RL4SysTrajectory>();
    step(*agent, *trajectory);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool disconnected = !agent->statistics().connected;
        trajectory.reset();
        agent.reset();
        ::_exit(disconnected ? 0 : 1);
    }
    int outcome = -1;
    ASSERT_EQ(::waitpid(child, &outcome, 0), child);
    EXPECT_EQ(outcome, 0);
    episode(*agent, *trajectory, 9);
    ASSERT_TRUE(agent->flush(patience));
    EXPECT_EQ(agent->statistics().stepsAcknowledged, 10u);
}

TEST_F(AgentTest, SpoolOfEarlierInstanceDoesNotDelayTheModel) {
    ScriptedServer server;
    {
        RL4SysAgent agent = makeAgent(server.address());
        server.stop();
        RL4SysTrajectory trajectory;
        for (int i = 0; i < 3; ++i) episode(agent, trajectory, 10);
    }
    // The server accepts the connection for the spool, but neither acknowledges nor refuses its trajectories.
    server.setHelloHandler([&](ScriptedServer::Connection& connection, const v1::Hello& hello) {
        server.welcome(connection);
        if (!hello.remote()) server.sendModel(connection, 1);
    });
    server.stopAcknowledging();
    server.start();
    RL4SysAgent agent = makeAgent(server.address());
    RL4SysTrajectory trajectory;
    EXPECT_EQ(step(agent, trajectory).version(), 1u);
}

TEST_F(AgentTest, RemoteInferenceReturnsActionsOfTheServer) {
    ScriptedServer server;
    std::atomic<std::int64_t> nextAct = 2;
    server.setActHandler([&](const v1::ActRequest& request, v1::ActReply& reply) {
        EXPECT_EQ(request.observation(0).name(), "obs.grid");
        EXPECT_EQ(request.observation(1).values().size(), 6 * sizeof(float));
        const std::int64_t act = nextAct;
        reply.mutable_action()->set_dtype(v1::DTYPE_INT64);
        reply.mutable_action()->set_values(std::string(reinterpret_cast<const char*>(&act), sizeof act));
        reply.set_log_prob(-0.5f);
        reply.set_version(9);
        reply.set_lineage("first");
        reply.set_draws_counter(request.draws_counter() + 1);
        return grpc::Status::OK;
    });
    RL4SysAgent agent = makeAgent(server.address(), {{"inference", "remote"}});
    RL4SysTrajectory trajectory;
    RL4SysAction action = step(agent, trajectory);
    EXPECT_EQ(action.act(), 2);
    EXPECT_EQ(action.version(), 9u);
    nextAct = 4;
    EXPECT_EQ(agent.requestForAction(trajectory, observation).fallbackReason(),
              "the action from the server is not legal");
    ASSERT_TRUE(agent.flush(patience));
    EXPECT_EQ(valuesOf<float>(server.received().at(0), "log_prob"), std::vector<float>{-0.5f});
    EXPECT_EQ(server.received().at(0).version(), 9u);
}

TEST_F(AgentTest, RemoteMultiDiscreteActionMustBeLegalInAllDimensions) {
    ScriptedServer server("multi_categorical_masked.safetensors");
    std::atomic<std::int64_t> second = 4;
    server.setActHandler([&](const v1::ActRequest& request, v1::ActReply& reply) {
        const std::int64_t act[] = {1, second};
        reply.mutable_action()->set_dtype(v1::DTYPE_INT64);
        reply.mutable_action()->set_values(std::string(reinterpret_cast<const char*>(act), sizeof act));
        reply.set_log_prob(-0.5f);
        reply.set_version(9);
        reply.set_lineage("first");
        reply.set_draws_counter(request.draws_counter() + 2);
        return grpc::Status::OK;
    });
    RL4SysAgent agent = makeAgent(server.address(), {{"inference", "remote"}, {"action", {2, 5}}, {"mask", true}});
    RL4SysTrajectory trajectory;
    const RL4SysAction action = step(agent, trajectory);
    EXPECT_TRUE(std::ranges::equal(action.acts(), std::array<std::int64_t, 2>{1, 4}));
    const std::array<bool, 7> forbidding{true, true, true, true, true, true, false};
    EXPECT_EQ(agent.requestForAction(trajectory, observation, forbidding).fallbackReason(),
              "the action from the server is not legal");
    second = 5;
    EXPECT_EQ(agent.requestForAction(trajectory, observation).fallbackReason(),
              "the action from the server is not legal");
    ASSERT_TRUE(agent.flush(patience));
    EXPECT_EQ(valuesOf<std::int64_t>(server.received().at(0), "action"), (std::vector<std::int64_t>{1, 4}));
}

}  // namespace
}  // namespace rl4sys::client
