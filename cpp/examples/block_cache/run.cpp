#include "run.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace block_cache {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

/// Return the CPU time of this thread (CLOCK_THREAD_CPUTIME_ID) or of the process (CLOCK_PROCESS_CPUTIME_ID).
double cpuSeconds(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double otherThreadsCpuSeconds() { return cpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpuSeconds(CLOCK_THREAD_CPUTIME_ID); }

std::uint32_t nanosecondsSince(Clock::time_point began) {
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count());
}

}  // namespace

double Slice::latencyMicroseconds(double quantile) const {
    if (nanoseconds.empty()) return 0.0;
    return 1e-3 * nanoseconds[static_cast<std::size_t>(quantile * static_cast<double>(nanoseconds.size() - 1))];
}

System::System(const BlockStore& store, const Popularity& popularity, const Load& load,
               const AdmissionMaker& makeAdmission)
    : cache_(store, load.cache), valueBytes_(store.shape().valueBytes) {
    for (std::uint32_t thread = 0; thread < load.threads; ++thread) {
        workers_.push_back({Workload(store.shape(), load.mixture, popularity, load.seed, thread), makeAdmission()});
    }
}

Slice System::run(std::uint64_t requests, const std::function<void()>& settle) {
    const double cpuBefore = otherThreadsCpuSeconds();
    const auto began = Clock::now();
    std::vector<Slice> parts(workers_.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t n = 0; n < workers_.size(); ++n) {
            threads.emplace_back([&, n] { parts[n] = serve(workers_[n], requests / workers_.size()); });
        }
    }
    Slice slice;
    slice.seconds = secondsSince(began);
    settle();
    slice.backgroundCpuSeconds = otherThreadsCpuSeconds() - cpuBefore;
    for (const Slice& part : parts) {
        slice.requests += part.requests;
        slice.hits += part.hits;
        slice.workerCpuSeconds += part.workerCpuSeconds;
        slice.backgroundCpuSeconds -= part.workerCpuSeconds;
        slice.nanoseconds.insert(slice.nanoseconds.end(), part.nanoseconds.begin(), part.nanoseconds.end());
    }
    std::ranges::sort(slice.nanoseconds);
    return slice;
}

Slice System::serve(Worker& worker, std::uint64_t requests) {
    Slice slice{.requests = requests, .nanoseconds = {}};
    const double cpuBefore = cpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    slice.nanoseconds.reserve(requests / timedEvery + 1);
    std::vector<char> value(valueBytes_);
    const auto get = [&] {
        const Request request = worker.workload.next();
        slice.hits += cache_.get(request.key, request.kind, value, *worker.admission) ? 1 : 0;
    };
    for (std::uint64_t n = 0; n < requests; ++n) {
        if (n % timedEvery != 0) {
            get();
            continue;
        }
        const auto began = Clock::now();
        get();
        slice.nanoseconds.push_back(nanosecondsSince(began));
    }
    slice.workerCpuSeconds = cpuSeconds(CLOCK_THREAD_CPUTIME_ID) - cpuBefore;
    return slice;
}

}  // namespace block_cache
