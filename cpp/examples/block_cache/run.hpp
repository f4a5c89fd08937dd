#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache.hpp"
#include "workload.hpp"

namespace block_cache {

/// Settings of the load and the cache that do not depend on the admission policy.
struct Load {
    std::uint32_t threads = 2;
    std::uint64_t seed = 0;
    CacheShape cache;
    Mixture mixture;
};

/// Measurements of one slice of a run.
struct Slice {
    std::uint64_t requests = 0;
    std::uint64_t hits = 0;
    double seconds = 0.0;
    double workerCpuSeconds = 0.0;           ///< CPU time of the workers.
    double backgroundCpuSeconds = 0.0;       ///< CPU time of all threads other than the workers and the main thread.
    std::vector<std::uint32_t> nanoseconds;  ///< Sorted latencies of the timed requests.

    double hitRate() const { return static_cast<double>(hits) / static_cast<double>(requests); }
    double throughput() const { return static_cast<double>(requests) / seconds; }
    double cpuMicroseconds() const {
        return 1e6 * (workerCpuSeconds + backgroundCpuSeconds) / static_cast<double>(requests);
    }
    double latencyMicroseconds(double quantile) const;
};

/// One of this many requests is timed, because reading the clock for every request would distort the measurement.
inline constexpr std::uint64_t timedEvery = 16;

/// System under load: a cached store and its workers. The load runs in slices, each measured separately.
class System {
public:
    using AdmissionMaker = std::function<std::unique_ptr<Admission>()>;

    /// \param makeAdmission function that creates the admission policy of a worker.
    /// The store and the popularity must outlive the system.
    System(const BlockStore& store, const Popularity& popularity, const Load& load,
           const AdmissionMaker& makeAdmission);

    /// Run `requests` requests, divided among the workers, then call `settle`. The measured CPU time includes `settle`,
    /// the measured duration does not.
    Slice run(std::uint64_t requests, const std::function<void()>& settle = [] {});

private:
    struct Worker {
        Workload workload;
        std::unique_ptr<Admission> admission;
    };

    Slice serve(Worker& worker, std::uint64_t requests);

    CachedStore cache_;
    std::uint32_t valueBytes_;
    std::vector<Worker> workers_;
};

}  // namespace block_cache
