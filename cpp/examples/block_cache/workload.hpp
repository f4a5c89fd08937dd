#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "admission.hpp"
#include "store.hpp"

namespace block_cache {

/// Fractions and properties of the request kinds. Requests that are neither scans nor sessions are point reads.
struct Mixture {
    double scans = 0.0;                 ///< Fraction of scans among all requests.
    double sessions = 0.0;              ///< Fraction of session reads among all requests.
    double skew = 0.9;                  ///< Zipf exponent of the popularity of blocks in point reads.
    std::uint32_t scanBlocks = 1024;    ///< Number of blocks in a scan.
    std::uint32_t sessionBlocks = 384;  ///< Number of blocks in the working set of sessions.
    std::uint32_t sessionPeriod = 8192; ///< Number of requests per thread after which the working set changes.

    /// Return a predefined mixture: `mixed`, `zipf` or `sessions`.
    /// \throws std::invalid_argument for other names.
    static Mixture named(std::string_view name);
};

struct Request {
    Key key = 0;
    Kind kind = Kind::point;
};

/// Zipf distribution over the blocks, for point reads. Shared by all threads.
class Popularity {
public:
    Popularity(std::uint32_t blocks, double skew, std::uint64_t seed);

    /// Return the block at a quantile in [0, 1) of the distribution.
    BlockId at(double quantile) const;

private:
    std::vector<double> cumulative_;
    std::vector<BlockId> ranked_;
};

/// Generator of the requests of one thread, determined by seed and thread number. The sessions of all threads have the
/// same working set.
class Workload {
public:
    Workload(const StoreShape& store, const Mixture& mixture, const Popularity& popularity, std::uint64_t seed,
             std::uint32_t thread);

    Request next();

private:
    double uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(uniform() * limit); }
    BlockId scan();
    BlockId session();

    const StoreShape store_;
    const Mixture mixture_;
    const Popularity& popularity_;
    const std::uint64_t seed_;
    std::mt19937_64 random_;
    std::uint64_t requests_ = 0;
    BlockId scanAt_ = 0;
    std::uint32_t scanLeft_ = 0;
};

}  // namespace block_cache
