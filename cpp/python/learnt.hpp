#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rl4sys/learnt.hpp"

using Address = std::uintptr_t;

/// Of a weight's values, their means and squares, and the number of steps: the addresses that torch gives.
using Place = std::array<Address, 4>;

template <typename Value>
Value* at(Address address) {
    return reinterpret_cast<Value*>(address);
}

inline rl4sys::WeightPlace toPlace(const Place& place) {
    return {at<float>(place[0]), at<float>(place[1]), at<float>(place[2]), at<float>(place[3])};
}

/// The longest, or how many times the mean over how many, that mean, and of how many it is.
inline rl4sys::Clipping toClipping(const std::array<double, 5>& given) {
    return {given[0], given[1], given[2], given[3], given[4]};
}

/// A network for an update to move.
struct LearntNetwork {
    LearntNetwork(const rl4sys::Layers& layers, const std::vector<Place>& weights, const std::array<float, 4>& adam);

    rl4sys::Learnt learnt;
};

/// A network for an update to ask.
struct FrozenNetwork {
    FrozenNetwork(const rl4sys::Layers& layers, const std::vector<Address>& weights);

    rl4sys::Frozen frozen;
};

void registerLearnt(nanobind::module_& module);
