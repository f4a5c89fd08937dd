#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "decision.hpp"
#include "sealed.hpp"
#include "snapshot.hpp"

/// \file
/// The bytes of a snapshot: read, and decided with once.

namespace {

using namespace rl4sys::client;

void readAndDecide(std::string_view blob) {
    try {
        decideOnce(*Snapshot::fromBytes(blob).program);
    } catch (const std::invalid_argument&) {
        return;
    }
}

/// As a liar would seal them: no fuzzer finds a checksum.
void readSealed(std::string_view blob) {
    try {
        readAndDecide(sealed(decodeTensors(blob)));
    } catch (const std::invalid_argument&) {
        return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view blob(reinterpret_cast<const char*>(bytes), size);
    readAndDecide(blob);
    readSealed(blob);
    return 0;
}
