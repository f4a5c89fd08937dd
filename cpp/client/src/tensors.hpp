#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Named arrays as safetensors bytes, and back: `rl4sys.tensors` in Python.

namespace rl4sys::client {

/// One array of a safetensors file, where it lies.
struct ArrayView {
    std::string dtype;  ///< As safetensors names it, such as F32.
    std::vector<std::size_t> shape;
    std::string_view bytes;  ///< Little-endian, in C order; not aligned.
};

using Arrays = std::map<std::string, ArrayView>;
using Metadata = std::map<std::string, std::string>;

struct TensorFile {
    Arrays arrays;  ///< Views of the bytes that were decoded.
    Metadata metadata;
};

/// Every size is checked against the length of `blob` before it is used.
/// \throws std::invalid_argument if it is not a safetensors file.
TensorFile decodeTensors(std::string_view blob);

/// The bytes that Python writes for the same arrays and metadata, whose names are UTF-8.
std::string encodeTensors(const Arrays& arrays, const Metadata& metadata);

}  // namespace rl4sys::client
