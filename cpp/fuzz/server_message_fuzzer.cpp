#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "decision.hpp"
#include "delta.hpp"
#include "golden.hpp"
#include "model.hpp"
#include "with_checksum.hpp"

/// \file
/// Fuzzer of server messages: reads the model in a Snapshot message, like a client with an earlier model and one
/// without, and makes one decision.

namespace {

using namespace rl4sys::client;
namespace v1 = rl4sys::v1;

const char* const lineage = "lineage";

const Spec& clientSpec() {
    static const Spec spec = Snapshot::fromBytes(goldenFile("squashed_mode.safetensors")).spec;
    return spec;
}

/// Return the model against which deltas are applied.
std::shared_ptr<const Model> heldModel() {
    v1::ServerMessage message;
    message.ParseFromString(goldenFile("full.message"));
    return readModel(message.snapshot(), lineage, nullptr, clientSpec());
}

void readAndDecide(const v1::Snapshot& message, const Model* held) {
    try {
        decideOnce(*readModel(message, lineage, held, clientSpec())->program);
    } catch (const std::invalid_argument&) {
        return;
    }
}

/// Truncate or pad a delta to the given size and compress it.
std::string compressed(std::string delta, std::size_t size) {
    delta.resize(size);
    uLongf capacity = compressBound(size);
    std::string result(capacity, '\0');
    const auto* const bytes = reinterpret_cast<const Bytef*>(delta.data());
    compress2(reinterpret_cast<Bytef*>(result.data()), &capacity, bytes, size, Z_BEST_SPEED);
    result.resize(capacity);
    return result;
}

/// Return the message with valid digests and checksums, which a malicious server could compute but the fuzzer cannot
/// guess. Returns nothing if the message cannot be decoded.
std::optional<v1::Snapshot> withValidDigests(v1::Snapshot message, const Model& held) {
    try {
        if (message.has_delta()) {
            v1::Delta& delta = *message.mutable_delta();
            delta.set_base_version(held.version);
            delta.set_compressed(compressed(delta.compressed(), held.content.size()));
            message.set_digest(digest(applyDelta(held.content, delta.compressed())));
        } else {
            message.set_full(withChecksum(decodeTensors(message.full())));
            message.set_digest(digest(message.full()));
        }
        return message;
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

void readAllWays(const v1::Snapshot& message, const Model& held) {
    readAndDecide(message, nullptr);
    readAndDecide(message, &held);
    if (const auto valid = withValidDigests(message, held)) readAndDecide(*valid, &held);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    static const std::shared_ptr<const Model> held = heldModel();
    const std::string text(reinterpret_cast<const char*>(bytes), size);
    v1::ServerMessage message;
    if (message.ParseFromString(text) && message.has_snapshot()) readAllWays(message.snapshot(), *held);
    return 0;
}
