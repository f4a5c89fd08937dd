#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Encoder and decoder of safetensors files. The Python module is `rl4sys.tensors`.

namespace rl4sys::client {

/// View of one array in a safetensors file.
struct ArrayView {
    std::string dtype;  ///< Name of the dtype in safetensors, such as F32.
    std::vector<std::size_t> shape;
    std::string_view bytes;  ///< Little-endian, C order, unaligned.
};

using Arrays = std::map<std::string, ArrayView>;
using Metadata = std::map<std::string, std::string>;

struct TensorFile {
    Arrays arrays;  ///< Views of the decoded bytes.
    Metadata metadata;
};

/// Decode a file; all sizes are checked against the length of `blob` before use.
/// \throws std::invalid_argument if `blob` is not a safetensors file.
TensorFile decodeTensors(std::string_view blob);

/// Encode arrays and metadata. Names are UTF-8. The bytes are identical to those of the Python encoder.
std::string encodeTensors(const Arrays& arrays, const Metadata& metadata);

}  // namespace rl4sys::client
