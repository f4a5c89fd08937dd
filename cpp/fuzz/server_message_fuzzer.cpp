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
#include "sealed.hpp"

/// \file
/// A message of the server, as bytes: a model in it is read, by a client that holds one or does not.

namespace {

using namespace rl4sys::client;
namespace v1 = rl4sys::v1;

const char* const lineage = "lineage";

const Spec& clientSpec() {
    static const Spec spec = Snapshot::fromBytes(goldenFile("squashed_mode.safetensors")).spec;
    return spec;
}

/// The model which differences start from.
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

/// What inflates to `difference`, brought to the length of a model's bytes.
std::string compressed(std::string difference, std::size_t size) {
    difference.resize(size);
    uLongf room = compressBound(size);
    std::string result(room, '\0');
    const auto* const bytes = reinterpret_cast<const Bytef*>(difference.data());
    compress2(reinterpret_cast<Bytef*>(result.data()), &room, bytes, size, Z_BEST_SPEED);
    result.resize(room);
    return result;
}

/// With digests and checksums that are right, as a liar would send it.
std::optional<v1::Snapshot> sealedMessage(v1::Snapshot message, const Model& held) {
    try {
        if (message.has_delta()) {
            v1::Delta& delta = *message.mutable_delta();
            delta.set_base_version(held.version);
            delta.set_compressed(compressed(delta.compressed(), held.content.size()));
            message.set_digest(digest(applyDifference(held.content, delta.compressed())));
        } else {
            message.set_full(sealed(decodeTensors(message.full())));
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
    if (const auto honest = sealedMessage(message, held)) readAndDecide(*honest, &held);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    static const std::shared_ptr<const Model> held = heldModel();
    const std::string text(reinterpret_cast<const char*>(bytes), size);
    v1::ServerMessage message;
    if (message.ParseFromString(text) && message.has_snapshot()) readAllWays(message.snapshot(), *held);
    return 0;
}
