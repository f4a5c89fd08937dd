#include "delta.hpp"

#include <openssl/evp.h>
#include <zlib.h>

#include <cstddef>
#include <limits>
#include <new>
#include <stdexcept>

namespace rl4sys::client {

namespace {

constexpr std::size_t word = 4;

const char* const sizeMismatch = "the model delta does not fit its base model";

class Inflater {
public:
    Inflater() {
        if (inflateInit(&stream_) != Z_OK) throw std::bad_alloc();
    }
    ~Inflater() { inflateEnd(&stream_); }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    /// Inflate all of `compressed`, which must yield `size` bytes.
    std::string inflateAll(std::string_view compressed, std::size_t size) {
        // With one extra byte, zlib reaches the end of a valid stream, and too long output is detected.
        std::string inflated(size + 1, '\0');
        setBuffers(compressed, inflated);
        const int result = inflate(&stream_, Z_FINISH);
        if (result == Z_DATA_ERROR || result == Z_NEED_DICT) {
            throw std::invalid_argument(std::string("the model delta cannot be decompressed: ") + errorText());
        }
        if (result != Z_STREAM_END || stream_.avail_out != 1) throw std::invalid_argument(sizeMismatch);
        inflated.resize(size);
        return inflated;
    }

private:
    void setBuffers(std::string_view compressed, std::string& inflated) {
        constexpr std::size_t largest = std::numeric_limits<uInt>::max();
        if (compressed.size() > largest || inflated.size() > largest) throw std::invalid_argument(sizeMismatch);
        // zlib takes a non-const pointer but does not write through it.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
        stream_.avail_in = static_cast<uInt>(compressed.size());
        stream_.next_out = reinterpret_cast<Bytef*>(inflated.data());
        stream_.avail_out = static_cast<uInt>(inflated.size());
    }

    const char* errorText() const { return stream_.msg == nullptr ? "it needs a dictionary" : stream_.msg; }

    z_stream stream_{};
};

}  // namespace

std::string digest(std::string_view content) {
    std::string result(EVP_MAX_MD_SIZE, '\0');
    unsigned int size = 0;
    auto* const bytes = reinterpret_cast<unsigned char*>(result.data());
    if (EVP_Digest(content.data(), content.size(), bytes, &size, EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("OpenSSL does not support SHA-256");
    }
    result.resize(size);
    return result;
}

std::string applyDelta(std::string_view base, std::string_view compressed) {
    std::string content = Inflater().inflateAll(compressed, base.size());
    const std::string regrouped = content;
    const std::size_t words = base.size() / word;
    for (std::size_t i = 0; i < words * word; ++i) content[i] = regrouped[i % word * words + i / word];
    for (std::size_t i = 0; i < base.size(); ++i) content[i] = static_cast<char>(content[i] ^ base[i]);
    return content;
}

}  // namespace rl4sys::client
