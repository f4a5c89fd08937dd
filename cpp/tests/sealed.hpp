#pragma once

#include <string>

#include "snapshot.hpp"
#include "tensors.hpp"

namespace rl4sys::client {

/// The bytes of a snapshot that was changed, with the checksum that a liar would give it.
inline std::string sealed(TensorFile snapshot) {
    snapshot.metadata["sha256"] = contentHash(snapshot.arrays, snapshot.metadata["program"]);
    return encodeTensors(snapshot.arrays, snapshot.metadata);
}

}  // namespace rl4sys::client
