#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "admission.hpp"
#include "store.hpp"

namespace block_cache {

/// What is asked of the store; what is neither scan nor session is a point read.
struct Mixture {
    double scans = 0.0;                 ///< Part of all requests.
    double sessions = 0.0;              ///< Part of all requests.
    double skew = 0.9;                  ///< Zipf's exponent of the blocks' popularity among point reads.
    std::uint32_t scanBlocks = 1024;    ///< Length of a scan.
    std::uint32_t sessionBlocks = 384;  ///< Blocks that sessions work on at a time.
    std::uint32_t sessionPeriod = 8192; ///< Requests of a thread after which they work on others.

    /// `mixed`, `zipf` or `sessions`.
    /// \throws std::invalid_argument if there is no such mixture.
    static Mixture named(std::string_view name);
};

struct Request {
    Key key = 0;
    Kind kind = Kind::point;
};

/// The blocks that point reads are for, by popularity; threads share it.
class Popularity {
public:
    Popularity(std::uint32_t blocks, double skew, std::uint64_t seed);

    /// The block at `quantile` of all point reads, in [0, 1).
    BlockId at(double quantile) const;

private:
    std::vector<double> cumulative_;
    std::vector<BlockId> ranked_;
};

/// The requests of one thread: the same for the same seed and thread. Sessions of all threads share their blocks.
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
