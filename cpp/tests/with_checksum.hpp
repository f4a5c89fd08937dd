#pragma once

#include <string>

#include "snapshot.hpp"
#include "tensors.hpp"

namespace rl4sys::client {

/// Encode a snapshot with a new checksum that matches its modified content.
inline std::string withChecksum(TensorFile snapshot) {
    snapshot.metadata["sha256"] = contentHash(snapshot.arrays, snapshot.metadata["program"]);
    return encodeTensors(snapshot.arrays, snapshot.metadata);
}

}  // namespace rl4sys::client
