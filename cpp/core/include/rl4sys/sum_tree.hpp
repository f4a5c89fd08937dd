#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace rl4sys {

/// Priorities whose sums are known, so that a leaf is drawn by its priority in logarithmic time.
///
/// A binary tree in one array: node 1 is the root, nodes 2n and 2n + 1 lie below node n. A sum is always that of the
/// two nodes below, so the priorities alone decide every bit of the tree, in whatever order they were set.
class SumTree {
public:
    explicit SumTree(std::size_t leaves)
        : leaves_(leaves), first_(std::bit_ceil(leaves)), nodes_(2 * first_, 0.0) {
        if (leaves == 0) throw std::invalid_argument("a sum tree has at least 1 leaf, got 0");
    }

    double total() const noexcept { return nodes_[1]; }

    double get(std::size_t leaf) const { return nodes_[first_ + checked(leaf)]; }

    void set(std::size_t leaf, double priority) {
        if (!std::isfinite(priority) || priority < 0) {
            throw std::invalid_argument("a priority is not finite, or below 0");
        }
        std::size_t node = first_ + checked(leaf);
        nodes_[node] = priority;
        while (node > 1) {
            node /= 2;
            nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
        }
    }

    /// The leaf in whose stretch of the running sum `value`, from 0 to the total, lies.
    std::size_t find(double value) const noexcept {
        std::size_t node = 1;
        while (node < first_) {
            const double left = nodes_[2 * node];
            // Rounding may push a value past the last leaf with a priority; it then belongs to that leaf.
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
            throw std::invalid_argument("leaf " + std::to_string(leaf) + " of a sum tree that has " +
                                        std::to_string(leaves_));
        }
        return leaf;
    }

    std::size_t leaves_;
    std::size_t first_;
    std::vector<double> nodes_;
};

}  // namespace rl4sys
