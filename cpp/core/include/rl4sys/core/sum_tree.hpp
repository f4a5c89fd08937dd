#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace rl4sys {

/// Sum tree over priorities. Sampling a leaf with a probability proportional to its priority takes logarithmic time.
///
/// A binary tree in one array: node 1 is the root, nodes 2n and 2n + 1 are the children of node n. Each inner node is
/// the sum of its children, so the sums depend only on the priorities and not on the order in which they were set.
class SumTree {
public:
    explicit SumTree(std::size_t leaves)
        : leaves_(leaves), first_(std::bit_ceil(leaves)), nodes_(2 * first_, 0.0) {
        if (leaves == 0) throw std::invalid_argument("a sum tree needs at least 1 leaf, got 0");
    }

    double total() const noexcept { return nodes_[1]; }

    double get(std::size_t leaf) const { return nodes_[first_ + checked(leaf)]; }

    void set(std::size_t leaf, double priority) {
        if (!std::isfinite(priority) || priority < 0) {
            throw std::invalid_argument("priorities must be finite and at least 0");
        }
        std::size_t node = first_ + checked(leaf);
        nodes_[node] = priority;
        while (node > 1) {
            node /= 2;
            nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
        }
    }

    /// Return the leaf whose interval of the cumulative sum contains `value`. `value` must be in 0..total.
    std::size_t find(double value) const noexcept {
        std::size_t node = 1;
        while (node < first_) {
            const double left = nodes_[2 * node];
            // Due to rounding, `value` may lie after the last leaf with a positive priority; then return this leaf.
            const bool right = value >= left && nodes_[2 * node + 1] > 0;
            if (right) value -= left;
            node = 2 * node + (right ? 1 : 0);
        }
        return node - first_;
    }

    std::size_t leaves() const noexcept { return leaves_; }

private:
    std::size_t checked(std::size_t leaf) const {
        if (leaf >= leaves_) {
            throw std::invalid_argument("leaf " + std::to_string(leaf) + " is out of range; the sum tree has " +
                                        std::to_string(leaves_) + " leaves");
        }
        return leaf;
    }

    std::size_t leaves_;
    std::size_t first_;
    std::vector<double> nodes_;
};

}  // namespace rl4sys
