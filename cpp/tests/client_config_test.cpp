#include "client_config.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "rl4sys/errors.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using rl4sys::ConfigError;
using rl4sys::client::Box;
using rl4sys::client::loadClientConfig;
using rl4sys::client::ClientConfig;

/// Tests of behavior that is specific to the C++ client. tests/cpp/test_settings_agree.py compares both clients.
class ClientConfigTest : public testing::Test {
protected:
    ClientConfigTest() {
        std::string name = (fs::temp_directory_path() / "rl4sys-settings-XXXXXX").string();
        folder_ = mkdtemp(name.data());
    }
    ~ClientConfigTest() override { fs::remove_all(folder_); }

    fs::path write(const std::string& name, const std::string& content) const {
        std::ofstream(folder_ / name, std::ios::binary) << content;
        return folder_ / name;
    }

    ClientConfig load(const std::string& content, const std::string& overrides = "") const {
        return loadClientConfig(write("client.json", content), overrides);
    }

    /// Load a config with the given settings and valid observation and action sizes.
    ClientConfig loadWith(const std::string& settings) const {
        return load(R"({"observation": 8, "action": 4, )" + settings + "}");
    }

    std::string errorOf(const fs::path& path, const std::string& overrides = "") const {
        try {
            loadClientConfig(path, overrides);
        } catch (const ConfigError& problem) {
            return problem.what();
        }
        return "";
    }

    std::string errorWith(const std::string& content, const std::string& overrides = "") const {
        return errorOf(write("client.json", content), overrides);
    }

    fs::path folder_;
};

testing::AssertionResult contains(const std::string& problem, const std::string& text) {
    if (problem.find(text) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "\"" << problem << "\" does not contain \"" << text << "\"";
}

const fs::path testData = fs::path(RL4SYS_TEST_DATA) / "../../../tests/data";

TEST_F(ClientConfigTest, LoadsConfigOfTheFirstOlderFormat) {
    const ClientConfig settings = loadClientConfig(testData / "promised_001.json", "");
    EXPECT_EQ(settings.clientId, "luna-landing");
    EXPECT_EQ(settings.policyId, "luna-landing");
    EXPECT_EQ(settings.seed, 0U);
    EXPECT_EQ(settings.spec.observation.front(), std::pair(std::string("state"), Box{{8}}));
    EXPECT_EQ(settings.spec.actionCount, 4U);
    EXPECT_EQ(settings.sendFrequency, 10U);
    EXPECT_EQ(settings.server.address, "localhost:50051");
    EXPECT_EQ(json::parse(settings.learnerSettings), json::parse(R"({
        "seed": 0, "buffer": {"episodes": 256, "size": 256000},
        "algorithm": {"name": "ppo", "minibatch_size": 512, "clip_ratio": 0.2, "gamma": 0.99, "gae_lambda": 0.95,
                      "lr": 3e-4, "critic_lr": 1e-3, "gradient_steps": 80, "target_kl": null}})"));
}

TEST_F(ClientConfigTest, LoadsConfigOfTheSecondOlderFormatWithSizesFromOverrides) {
    const ClientConfig settings = loadClientConfig(testData / "promised_003.json",
                                                   R"({"observation": [2, 3], "action": 5})");
    EXPECT_EQ(settings.clientId, "promised_003");
    EXPECT_EQ(settings.spec.inputSize(), 6U);
    EXPECT_EQ(settings.spec.actionCount, 5U);
    EXPECT_EQ(settings.server.timeoutSeconds, 10.0);
    const json learner = json::parse(settings.learnerSettings);
    EXPECT_EQ(learner["network"]["all"]["hidden_dims"], json({64, 64}));
    EXPECT_EQ(learner["algorithm"]["minibatch_size"], 64);
}

TEST_F(ClientConfigTest, ErrorForMissingSizesExplainsHowToSetThem) {
    const std::string problem = errorOf(testData / "promised_003.json");
    EXPECT_TRUE(contains(problem, "the size of observation and of action are missing"));
    EXPECT_TRUE(contains(problem, R"(AgentOptions::settings, such as {"observation": 8, "action": 4})"));
    EXPECT_TRUE(contains(errorWith(R"({"observation": 8})"), "the size of action is missing"));
}

TEST_F(ClientConfigTest, DefaultsMatchThePythonClient) {
    const ClientConfig settings = load(R"({"observation": 8, "action": 4})");
    EXPECT_EQ(settings.clientId, "client");
    EXPECT_EQ(settings.policyId, "client");
    EXPECT_EQ(settings.seed, std::nullopt);
    EXPECT_EQ(settings.learnerSettings, "{}");
    EXPECT_FALSE(settings.remote);
    EXPECT_FALSE(settings.server.tls.has_value());
    EXPECT_EQ(settings.maxTrajLength, 1000U);
    EXPECT_EQ(settings.flushSeconds, 5.0);
    EXPECT_TRUE(settings.outbox.spool.empty());
    EXPECT_EQ(settings.outbox.memoryBytes, 64U << 20);
    EXPECT_TRUE(settings.fallbackActs.empty());
    EXPECT_TRUE(settings.fallbackValues.empty());
}

TEST_F(ClientConfigTest, ResolvesPathsRelativeToTheConfig) {
    write("secret", "  the token \r\nsomething else\n");
    const ClientConfig settings = loadWith(R"("outbox": {"spool": "kept"}, "server": {
        "token": "another", "token_file": "secret", "tls": {"ca": "/etc/ca.pem"}})");
    EXPECT_EQ(settings.outbox.spool, folder_ / "kept");
    EXPECT_EQ(settings.server.token, "the token");
    EXPECT_EQ(settings.server.tls->ca, "/etc/ca.pem");
    EXPECT_EQ(settings.server.tls->cert, "");
}

TEST_F(ClientConfigTest, ExpandsTheHomeDirectory) {
    const char* home = std::getenv("HOME");
    if (home == nullptr) GTEST_SKIP() << "HOME is not set";
    EXPECT_EQ(loadWith(R"("outbox": {"spool": "~/kept"})").outbox.spool, fs::path(home) / "kept");
    EXPECT_EQ(loadWith(R"("outbox": {"spool": "~"})").outbox.spool, fs::path(home));
    EXPECT_EQ(loadWith(R"("outbox": {"spool": "a~"})").outbox.spool, folder_ / "a~");
}

TEST_F(ClientConfigTest, ValidatesTheFallbackActionAgainstTheActionSpace) {
    EXPECT_EQ(loadWith(R"("fallback_action": 3)").fallbackActs, std::vector<std::int64_t>{3});
    const ClientConfig numbers =
        load(R"({"observation": 8, "action": {"size": 2, "low": -1, "high": 1}, "fallback_action": [0.5, -1]})");
    EXPECT_EQ(numbers.fallbackValues, (std::vector<float>{0.5f, -1.0f}));
    EXPECT_TRUE(contains(errorWith(R"({"observation": 8, "action": 4, "fallback_action": 4})"),
                     "fallback_action is 4; expected a discrete action from 0 to 3"));
    const std::string multiDiscrete = R"({"observation": 8, "action": [3, 2], "fallback_action": )";
    EXPECT_EQ(load(multiDiscrete + "[2, 1]}").fallbackActs, (std::vector<std::int64_t>{2, 1}));
    for (const char* wrong : {"[2, 2]", "[2]", "1", "[2, -1]", "[1.0, 1]", "[18446744073709551615, 0]"}) {
        EXPECT_TRUE(contains(errorWith(multiDiscrete + wrong + "}"),
                         "expected one discrete action per dimension, from 0 to [2,1]"))
            << wrong;
    }
}

TEST_F(ClientConfigTest, ClampsHugeTimeouts) {
    const ClientConfig settings = loadWith(R"("patience_seconds": 1e300, "flush_seconds": "inf")");
    EXPECT_EQ(settings.patienceSeconds, 1e9);
    EXPECT_EQ(settings.flushSeconds, 1e9);
}

TEST_F(ClientConfigTest, OverridesReplaceSingleSettings) {
    const std::string file = R"({"observation": 8, "action": 4, "server": {"address": "here:1", "token": "t"}})";
    const ClientConfig settings = load(file, R"({"server": {"address": "there:2"}, "outbox.spool_bytes": 7})");
    EXPECT_EQ(settings.server.address, "there:2");
    EXPECT_EQ(settings.server.token, "t");
    EXPECT_EQ(settings.outbox.spoolBytes, 7U);
    EXPECT_TRUE(contains(errorWith(file, R"({"server.adress": 5})"), "server.adress is not a setting; did you mean a"));
    EXPECT_TRUE(contains(errorWith(file, "{"), "AgentOptions::settings is not valid JSON: parse error at line 1"));
    EXPECT_TRUE(contains(errorWith(file, "5"), "AgentOptions::settings contains 5, not a block of settings"));
    EXPECT_TRUE(contains(errorWith(file, R"({"a": 1, "a": 2})"), "AgentOptions::settings: a is given twice"));
}

TEST_F(ClientConfigTest, ReportsAllErrorsTogether) {
    const std::string problem = errorWith(R"({"observation": 8, "action": 4, "sede": 1, "max_traj_length": 0,
                                                "server": {"tls": {"certs": "x"}, "timeout_seconds": true}})");
    EXPECT_EQ(problem,
              "server.tls.certs is not a setting; did you mean cert?\n"
              "server.timeout_seconds is true; expected a number, not true or false\n"
              "max_traj_length is 0; expected a value greater than 0\n"
              "sede is not a setting; did you mean seed?\n"
              "Known in server.tls: ca, cert, key.\n"
              "Known in the config: action, algorithm, buffer, client_id, fallback_action, flush_seconds, inference, "
              "mask, max_staleness, max_traj_length, network, normalize_obs, normalize_reward, observation, outbox, "
              "patience_seconds, pin_version, policy_id, seed, send_frequency, server, training, version.");
}

TEST_F(ClientConfigTest, ReportsMissingAndMalformedFiles) {
    EXPECT_TRUE(contains(errorOf(folder_ / "nowhere.json"), "no config file"));
    EXPECT_TRUE(contains(errorOf(folder_), "no config file"));
    EXPECT_TRUE(contains(errorWith(""), "client.json is empty"));
    EXPECT_TRUE(contains(errorWith("[1]"), "client.json contains [1], not a block of settings"));
    EXPECT_TRUE(contains(errorWith("{\n  \"seed\": oops}"), "is not valid JSON: parse error at line 2, column 11"));
    EXPECT_TRUE(contains(errorWith("observation: 8"), "is not valid JSON: parse error at line 1, column 1"));
    EXPECT_TRUE(contains(errorWith(R"({"a": {"b": 1, "b": 2}})"), "client.json: a.b is given twice"));
    EXPECT_TRUE(contains(errorWith(std::string(100000, '[')), "client.json is nested too deeply for a config"));
    EXPECT_TRUE(contains(errorWith("{}", "{\"" + std::string(100000, '.') + "\": 1}"), "is nested too deeply"));
    EXPECT_TRUE(contains(errorWith(R"({"seed": 1e999})"), "seed is 1e999; the number is too large"));
    EXPECT_TRUE(contains(errorWith(R"({"seed": 99999999999999999999})"),
                     "seed is 99999999999999999999; the number is too"));
    EXPECT_TRUE(contains(errorWith("{\"client_id\": \"\xff\"}"), "is not valid JSON"));
}

TEST_F(ClientConfigTest, ReportsAFileWithoutReadPermission) {
    const fs::path path = write("client.json", "{}");
    fs::permissions(path, fs::perms::none);
    if (access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "this user can read all files";
    EXPECT_TRUE(contains(errorOf(path), "cannot read " + path.string() + ": Permission denied"));
}

TEST_F(ClientConfigTest, YamlIsRejectedWithAConversionCommand) {
    const std::string problem = errorOf(write("client.YML", "observation: 8"));
    EXPECT_TRUE(contains(problem, "the C++ client reads JSON; convert it: python -c"));
    EXPECT_TRUE(contains(problem, "> client.json"));
}

TEST_F(ClientConfigTest, MergesTheFilesInExtends) {
    write("sizes.json", R"({"observation": 8, "action": 4, "algorithm": {"name": "ppo"}})");
    write("fleet.json", R"({"extends": ["sizes.json"], "action": 5, "algorithm": {"lr": 1}})");
    const ClientConfig settings = load(R"({"extends": ["fleet.json"], "algorithm": {"lr": 2}})");
    EXPECT_EQ(settings.spec.actionCount, 5U);
    EXPECT_EQ(json::parse(settings.learnerSettings), json::parse(R"({"algorithm": {"name": "ppo", "lr": 2}})"));
    EXPECT_TRUE(contains(errorWith(R"({"extends": ["client.json"]})"), "extends itself"));
    EXPECT_TRUE(contains(errorWith(R"({"extends": ["algorithms/ppo"]})"), "the C++ client has no shipped configs"));
    EXPECT_TRUE(contains(errorWith(R"({"extends": ["sizes.json"], "algorithm": "ppo"})"),
                         "would replace a whole block"));
}

TEST_F(ClientConfigTest, RejectsInvalidIdsAndTokens) {
    EXPECT_TRUE(contains(errorWith(R"({"client_id": "a\n"})"),
                         "client_id is \"a\\n\"; expected at most 100 letters"));
    EXPECT_TRUE(contains(errorWith(R"({"policy_id": "a/b"})"),
                         "policy_id is \"a/b\"; expected at most 100 letters"));
    EXPECT_TRUE(contains(errorOf(write("\xff.json", "{}")), "client_id is"));
    EXPECT_TRUE(contains(errorWith(R"({"observation": 1, "action": 1, "server": {"token": "schlüssel"}})"),
                     "server.token or its file contains characters that are not printable ASCII"));
    EXPECT_EQ(loadWith(R"("client_id": "größe-1.a_b")").clientId, "größe-1.a_b");
}

TEST_F(ClientConfigTest, RejectsInvalidPorts) {
    const std::string file = R"({"observation": 1, "action": 1, "server": {"address": ")";
    for (const char* address : {"localhost:65536", "localhost:117980", "[::1]:99999999999999999999"}) {
        EXPECT_TRUE(contains(errorWith(file + address + "\"}}"), "expected a port of at most 65535")) << address;
    }
    for (const char* address : {"localhost:65535", "localhost", "unix:/run/rl4sys"}) {
        EXPECT_EQ(errorWith(file + address + "\"}}"), "") << address;
    }
}

TEST_F(ClientConfigTest, RejectsUnreadableTokenFile) {
    const std::string file = R"({"observation": 1, "action": 1, "server": {"token_file": ")";
    EXPECT_TRUE(contains(errorWith(file + "nowhere\"}}"), "it cannot be read: No such file or directory"));
    EXPECT_TRUE(contains(errorWith(file + ".\"}}"), "it cannot be read: Is a directory"));
    EXPECT_EQ(errorWith(file + "/dev/null\"}}"), "");
}

TEST_F(ClientConfigTest, RejectsInvalidSettingsInOlderFormats) {
    EXPECT_TRUE(contains(errorWith(R"({"algorithm_name": "ppo", "server": 5, "train_server_address": "a:1"})"),
                     "server is 5; expected a block of settings"));
    EXPECT_TRUE(contains(errorWith(R"({"algorithm_name": "ppo", "max_traj_length": 1000000000000,
                                     "algorithm_parameters": {"traj_per_epoch": 1000000000000}})"),
                     "algorithm_parameters.traj_per_epoch is 1000000000000"));
    EXPECT_TRUE(contains(errorWith(R"({"algorithm_name": "ppo", "max_traj_length": null,
                                     "algorithm_parameters": {"traj_per_epoch": 2}})"),
                     "max_traj_length is null; expected an integer"));
    EXPECT_TRUE(contains(errorWith(R"({"algorithm_name": "ppo",
                                     "algorithm_parameters": {"train_pi_iters": null, "train_v_iters": 3}})"),
                     "algorithm_parameters.train_pi_iters is null; expected an integer"));
}

}  // namespace
