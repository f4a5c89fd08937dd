#include "tensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "bounded_json.hpp"

namespace rl4sys::client {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "arrays are used without byte swapping");

constexpr const char* metadataName = "__metadata__";
constexpr std::size_t prefix = sizeof(std::uint64_t);
constexpr std::size_t maxHeaderBytes = 16 * 1024 * 1024;
constexpr std::size_t alignment = 8;
/// Maximum number of axes, as in numpy.
constexpr std::size_t maxAxes = 64;

const std::map<std::string, std::size_t>& itemSizes() {
    static const std::map<std::string, std::size_t> sizes{{"F64", 8}, {"F32", 4}, {"F16", 2}, {"I64", 8},
                                                          {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},
                                                          {"U32", 4}, {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
    return sizes;
}

std::uint64_t headerLength(std::string_view blob) {
    std::uint64_t length = 0;
    std::memcpy(&length, blob.data(), std::min(blob.size(), prefix));
    return length;
}

std::string_view headerText(std::string_view blob) {
    const std::uint64_t length = headerLength(blob);
    if (blob.size() < prefix || length > blob.size() - prefix) {
        throw std::invalid_argument("not a safetensors file: " + std::to_string(blob.size()) +
                                    " bytes cannot contain the declared header of " + std::to_string(length) +
                                    " bytes");
    }
    if (length > maxHeaderBytes) {
        throw std::invalid_argument("not a safetensors file: its header has " + std::to_string(length) +
                                    " bytes; the maximum is " + std::to_string(maxHeaderBytes));
    }
    return blob.substr(prefix, length);
}

json parseHeader(std::string_view text) {
    json header;
    try {
        header = parseJson(text);
    } catch (const std::invalid_argument& problem) {
        throw std::invalid_argument(std::string("not a safetensors file: its header is not JSON (") + problem.what() +
                                    ")");
    }
    if (!header.is_object()) throw std::invalid_argument("not a safetensors file: its header is not a JSON object");
    return header;
}

Metadata readMetadata(const json& value) {
    if (!value.is_object()) {
        throw std::invalid_argument("the metadata of a safetensors file must be a JSON object, got " + quoted(value));
    }
    Metadata metadata;
    for (const auto& [name, text] : value.items()) {
        if (!text.is_string()) {
            throw std::invalid_argument("the metadata entry '" + shortened(name) +
                                        "' of a safetensors file must be a string, got " + quoted(text));
        }
        metadata.emplace(name, text.get<std::string>());
    }
    return metadata;
}

std::optional<std::vector<std::size_t>> naturals(const json& entry, const char* member) {
    const auto found = entry.find(member);
    if (found == entry.end() || !found->is_array() || found->size() > maxAxes) return std::nullopt;
    std::vector<std::size_t> numbers;
    for (const json& number : *found) {
        if (!number.is_number_unsigned()) return std::nullopt;
        numbers.push_back(number.get<std::size_t>());
    }
    return numbers;
}

std::string dtypeOf(const json& entry) {
    const auto found = entry.find("dtype");
    const bool known = found != entry.end() && found->is_string() && itemSizes().contains(found->get<std::string>());
    return known ? found->get<std::string>() : "";
}

/// Return the size of an array in bytes, or the maximum of std::size_t if the size overflows.
std::size_t bytesOf(const ArrayView& array) {
    constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
    std::size_t bytes = itemSizes().at(array.dtype);
    for (const std::size_t length : array.shape) {
        if (length != 0 && bytes > largest / length) return largest;
        bytes *= length;
    }
    return bytes;
}

ArrayView viewOf(std::string_view values, const std::string& name, const json& entry) {
    const auto shape = naturals(entry, "shape");
    const auto range = naturals(entry, "data_offsets");
    ArrayView view{dtypeOf(entry), {}, {}};
    if (view.dtype.empty() || !shape || !range || range->size() != 2) {
        throw std::invalid_argument("array '" + shortened(name) +
                                    "' of a safetensors file has an invalid description: " + quoted(entry));
    }
    view.shape = *shape;
    const std::size_t first = range->front();
    const std::size_t end = range->back();
    if (first > end || end > values.size() || end - first != bytesOf(view)) {
        throw std::invalid_argument("array '" + shortened(name) + "' needs " + std::to_string(bytesOf(view)) +
                                    " bytes, but its data_offsets are " + std::to_string(first) + " and " +
                                    std::to_string(end) + " in " + std::to_string(values.size()) + " bytes of data");
    }
    view.bytes = values.substr(first, end - first);
    return view;
}

/// Reject overlapping arrays: a small file could otherwise require a large amount of memory when its arrays are copied.
void checkSharedBytes(const Arrays& arrays, std::size_t size) {
    std::size_t total = 0;
    for (const auto& [name, array] : arrays) total += array.bytes.size();
    if (total <= size) return;
    throw std::invalid_argument("the arrays of a safetensors file overlap: they need " + std::to_string(total) +
                                " bytes, but the file has " + std::to_string(size) + " bytes of data");
}

/// Return compact JSON with escaped non-ASCII characters, like `json.dumps` in Python.
std::string asciiJson(const json& value) { return value.dump(-1, ' ', true); }

std::string headerFor(const Arrays& arrays, const Metadata& metadata) {
    std::string text = R"({"__metadata__":)" + asciiJson(metadata);
    std::size_t offset = 0;
    for (const auto& [name, array] : arrays) {
        const std::array range{offset, offset + array.bytes.size()};
        text.append(",").append(asciiJson(name)).append(R"(:{"dtype":)").append(asciiJson(array.dtype));
        text.append(R"(,"shape":)").append(asciiJson(array.shape));
        text.append(R"(,"data_offsets":)").append(asciiJson(range)).append("}");
        offset = range.back();
    }
    text += "}";
    text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
    return text;
}

}  // namespace

TensorFile decodeTensors(std::string_view blob) {
    const std::string_view text = headerText(blob);
    const std::string_view values = blob.substr(prefix + text.size());
    const json header = parseHeader(text);
    TensorFile file;
    for (const auto& [name, entry] : header.items()) {
        if (name == metadataName) {
            file.metadata = readMetadata(entry);
        } else {
            file.arrays.emplace(name, viewOf(values, name, entry));
        }
    }
    checkSharedBytes(file.arrays, values.size());
    return file;
}

std::string encodeTensors(const Arrays& arrays, const Metadata& metadata) {
    const std::string text = headerFor(arrays, metadata);
    const std::uint64_t length = text.size();
    std::string blob(prefix, '\0');
    std::memcpy(blob.data(), &length, prefix);
    blob += text;
    for (const auto& [name, array] : arrays) blob += array.bytes;
    return blob;
}

}  // namespace rl4sys::client
