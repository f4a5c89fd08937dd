#include "workload.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "history.hpp"

namespace block_cache {

Mixture Mixture::named(std::string_view name) {
    if (name == "mixed") return {.scans = 0.35, .sessions = 0.3};
    if (name == "zipf") return {};
    if (name == "sessions") return {.sessions = 1.0};
    throw std::invalid_argument("unknown workload '" + std::string(name) + "'; expected mixed, zipf or sessions");
}

Popularity::Popularity(std::uint32_t blocks, double skew, std::uint64_t seed) : cumulative_(blocks), ranked_(blocks) {
    double sum = 0.0;
    for (std::uint32_t rank = 0; rank < blocks; ++rank) cumulative_[rank] = sum += std::pow(rank + 1.0, -skew);
    std::iota(ranked_.begin(), ranked_.end(), 0);
    // std::shuffle may give different results with other standard libraries, so shuffle here.
    std::mt19937_64 random(seed);
    for (std::uint32_t left = blocks; left > 1; --left) std::swap(ranked_[left - 1], ranked_[random() % left]);
}

BlockId Popularity::at(double quantile) const {
    const auto found = std::ranges::upper_bound(cumulative_, quantile * cumulative_.back());
    const auto rank = static_cast<std::size_t>(found - cumulative_.begin());
    return ranked_[std::min(rank, ranked_.size() - 1)];
}

Workload::Workload(const StoreShape& store, const Mixture& mixture, const Popularity& popularity, std::uint64_t seed,
                   std::uint32_t thread)
    : store_(store), mixture_(mixture), popularity_(popularity), seed_(seed), random_(hashed(seed) + thread) {}

Request Workload::next() {
    ++requests_;
    const double drawn = uniform();
    // A scan reads all values of a block with a single request.
    if (drawn < mixture_.scans) return {Key{scan()} * store_.valuesPerBlock, Kind::scan};
    const bool point = drawn >= mixture_.scans + mixture_.sessions;
    const BlockId block = point ? popularity_.at(uniform()) : session();
    return {Key{block} * store_.valuesPerBlock + below(store_.valuesPerBlock), point ? Kind::point : Kind::session};
}

BlockId Workload::scan() {
    if (scanLeft_ == 0) {
        scanAt_ = below(store_.blocks);
        scanLeft_ = mixture_.scanBlocks;
    }
    --scanLeft_;
    return scanAt_ = (scanAt_ + 1) % store_.blocks;
}

BlockId Workload::session() {
    const std::uint64_t period = requests_ / mixture_.sessionPeriod;
    return static_cast<BlockId>(hashed(hashed(seed_ + period) + below(mixture_.sessionBlocks)) % store_.blocks);
}

}  // namespace block_cache
