#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "decision.hpp"
#include "with_checksum.hpp"
#include "snapshot.hpp"

/// \file
/// Fuzzer of the snapshot reader: reads the input as a snapshot and makes one decision with its policy.

namespace {

using namespace rl4sys::client;

void readAndDecide(std::string_view blob) {
    try {
        decideOnce(*Snapshot::fromBytes(blob).program);
    } catch (const std::invalid_argument&) {
        return;
    }
}

/// Read a snapshot after replacing its checksum by a valid one, which the fuzzer cannot guess.
void readWithChecksum(std::string_view blob) {
    try {
        readAndDecide(withChecksum(decodeTensors(blob)));
    } catch (const std::invalid_argument&) {
        return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view blob(reinterpret_cast<const char*>(bytes), size);
    readAndDecide(blob);
    readWithChecksum(blob);
    return 0;
}
