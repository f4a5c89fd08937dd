#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache.hpp"
#include "workload.hpp"

namespace block_cache {

/// What is run, whatever decides about admissions.
struct Load {
    std::uint32_t threads = 2;
    std::uint64_t seed = 0;
    CacheShape cache;
    Mixture mixture;
};

/// What a run did between two points in time.
struct Slice {
    std::uint64_t requests = 0;
    std::uint64_t hits = 0;
    double seconds = 0.0;
    double workerCpuSeconds = 0.0;           ///< Processor time of the workers.
    double backgroundCpuSeconds = 0.0;       ///< Of all threads but the workers and the one that waits for them.
    std::vector<std::uint32_t> nanoseconds;  ///< Of every `timedEvery`th request, ascending.

    double hitRate() const { return static_cast<double>(hits) / static_cast<double>(requests); }
    double throughput() const { return static_cast<double>(requests) / seconds; }
    double cpuMicroseconds() const {
        return 1e6 * (workerCpuSeconds + backgroundCpuSeconds) / static_cast<double>(requests);
    }
    double latencyMicroseconds(double quantile) const;
};

/// Clock reads are cheap beside a request, but not free.
inline constexpr std::uint64_t timedEvery = 16;

/// A system under load: a cache, and workers that ask it. Can be run slice by slice, others in between.
class System {
public:
    using AdmissionMaker = std::function<std::unique_ptr<Admission>()>;

    /// `makeAdmission` is called once for each worker. The store and the popularity must outlive the system.
    System(const BlockStore& store, const Popularity& popularity, const Load& load,
           const AdmissionMaker& makeAdmission);

    /// Let every worker do its share of so many more requests; `settle` is called thereafter, and only its use of the
    /// processor counts, not its time.
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
