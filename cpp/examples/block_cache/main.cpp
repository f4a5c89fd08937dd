/// \file
/// Program that runs a key-value store under load and compares cache admission policies. See README.md.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "learned_admission.hpp"
#include "options.hpp"
#include "rl4sys/agent.hpp"
#include "run.hpp"
#include "store.hpp"

namespace block_cache {
namespace {

using nlohmann::json;

/// Open the store in `directory`. The store is created if it does not exist.
BlockStore openStore(const std::filesystem::path& directory) {
    std::filesystem::create_directories(directory);
    const std::filesystem::path path = directory / "rl4sys_block_cache.store";
    if (!std::filesystem::exists(path)) {
        std::cerr << "writing " << path.string() << '\n';
        BlockStore::create(path, StoreShape{});
    }
    return BlockStore(path);
}

bool learns(std::string_view policy) { return policy == "rl4sys"; }
bool needsAgent(std::string_view policy) { return learns(policy) || policy == "quiet"; }

std::unique_ptr<Admission> makeAdmission(std::string_view policy, LearningOptions learning,
                                         rl4sys::RL4SysAgent* agent) {
    if (policy == "lru") return std::make_unique<AdmitAll>();
    if (policy == "fixed") return std::make_unique<AdmitMoreFrequent>();
    if (!needsAgent(policy)) throw std::invalid_argument("unknown policy '" + std::string(policy) + "'; see --help");
    if (!learns(policy)) learning.recordEvery = 0;
    return std::make_unique<LearnedAdmission>(*agent, learning);
}

struct PolicyRun {
    std::string policy;
    System system;
    std::vector<Slice> slices;
};

void printSlice(const PolicyRun& policyRun) {
    const Slice& slice = policyRun.slices.back();
    std::printf("%-7s slice %3zu   %8.0f requests/s   %5.2f µs cpu   hits %5.2f %%   get p50 %6.2f  p99 %7.2f µs\n",
                policyRun.policy.c_str(), policyRun.slices.size(), slice.throughput(), slice.cpuMicroseconds(),
                100.0 * slice.hitRate(), slice.latencyMicroseconds(0.5), slice.latencyMicroseconds(0.99));
    std::fflush(stdout);
}

json described(const Slice& slice) {
    return {{"requests", slice.requests},
            {"hits", slice.hits},
            {"seconds", slice.seconds},
            {"worker_cpu_seconds", slice.workerCpuSeconds},
            {"background_cpu_seconds", slice.backgroundCpuSeconds},
            {"p50_microseconds", slice.latencyMicroseconds(0.5)},
            {"p99_microseconds", slice.latencyMicroseconds(0.99)},
            {"p999_microseconds", slice.latencyMicroseconds(0.999)}};
}

json described(const rl4sys::Statistics& statistics) {
    return {{"decisions", statistics.decisions},
            {"fallback_decisions", statistics.fallbackDecisions},
            {"version", statistics.version ? json(*statistics.version) : json()},
            {"versions_adopted", statistics.versionsAdopted},
            {"steps_sent", statistics.stepsSent},
            {"steps_acknowledged", statistics.stepsAcknowledged},
            {"dropped_steps", statistics.droppedSteps},
            {"late_rewards", statistics.lateRewards},
            {"trajectories_refused", statistics.trajectoriesRefused},
            {"last_problem", statistics.lastProblem}};
}

/// Runs all policies alternately, slice by slice, for the given number of requests or seconds.
class Comparison {
public:
    Comparison(const Options& options, const BlockStore& store, rl4sys::RL4SysAgent* agent)
        : options_(options), agent_(agent),
          popularity_(store.shape().blocks, options.load.mixture.skew, options.load.seed) {
        policyRuns_.reserve(options.policies.size());
        for (const std::string& policy : options.policies) {
            Load load = options.load;
            load.cache.history = policy != "lru";
            const auto make = [&] { return makeAdmission(policy, options.learning, agent); };
            policyRuns_.push_back({policy, System(store, popularity_, load, make), {}});
        }
    }

    void run() {
        using Clock = std::chrono::steady_clock;
        const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
        const auto enough = [&](std::uint64_t rounds) {
            return options_.requests ? rounds * options_.slice >= *options_.requests : Clock::now() >= end;
        };
        for (std::uint64_t round = 0; !enough(round); ++round) {
            for (std::size_t turn = 0; turn < policyRuns_.size(); ++turn) {
                runSlice(policyRuns_[(turn + round) % policyRuns_.size()]);
            }
        }
    }

    json results() const {
        json policies = json::object();
        for (const PolicyRun& policyRun : policyRuns_) {
            for (const Slice& slice : policyRun.slices) policies[policyRun.policy].push_back(described(slice));
        }
        return policies;
    }

private:
    void runSlice(PolicyRun& policyRun) {
        policyRun.slices.push_back(policyRun.system.run(options_.slice, [&] { settle(policyRun.policy); }));
        if (!options_.json) printSlice(policyRun);
    }

    /// Wait until the background work after a slice (sending, model updates) is finished, so that it does not slow down
    /// the next slice.
    void settle(std::string_view policy) {
        if (!options_.settle || agent_ == nullptr) return;
        if (learns(policy)) agent_->flush(std::chrono::seconds(5));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }

    const Options& options_;
    rl4sys::RL4SysAgent* agent_;
    Popularity popularity_;
    std::vector<PolicyRun> policyRuns_;
};

int run(const Options& options) {
    const BlockStore store = openStore(options.directory);
    std::optional<rl4sys::RL4SysAgent> agent;
    if (std::ranges::any_of(options.policies, needsAgent)) {
        rl4sys::AgentOptions agentOptions;
        agentOptions.settings = options.settings.dump();
        agent.emplace(options.config, std::move(agentOptions));
    }
    json report;
    {
        Comparison comparison(options, store, agent ? &*agent : nullptr);
        comparison.run();
        report["policies"] = comparison.results();
    }
    if (agent) {
        agent->close();
        report["agent"] = described(agent->statistics());
    }
    if (options.json) {
        std::cout << report.dump() << '\n';
    } else if (agent) {
        std::cout << "agent " << report["agent"].dump(2) << '\n';
    }
    return 0;
}

}  // namespace
}  // namespace block_cache

int main(int count, char** arguments) {
    try {
        const block_cache::Options options = block_cache::parse({arguments, static_cast<std::size_t>(count)});
        if (options.help) {
            std::cout << block_cache::usage;
            return 0;
        }
        return block_cache::run(options);
    } catch (const std::exception& error) {
        std::cerr << "block_cache: " << error.what() << '\n';
        return 1;
    }
}
