#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pace.hpp"
#include "rl4sys/v1/training.pb.h"
#include "client_config.hpp"

namespace rl4sys::client {

/// Reason for the end of a stream.
struct StreamEnd {
    enum class Kind { lost, unauthenticated, denied };

    Kind kind = Kind::lost;
    std::string message;
};

/// Bidirectional stream to a server. Used only by the thread that opened it, except for `act`. Only the destructor and
/// `act` block.
class Stream {
public:
    virtual ~Stream() = default;

    /// Return true if a message can be sent now.
    virtual bool ready() const = 0;
    /// Start to send a message. Requires `ready`.
    virtual void send(v1::ClientMessage message) = 0;

    /// Return the received message; null if there is none. The next message is read only after `consume`.
    virtual const v1::ServerMessage* received() = 0;
    /// Discard the received message and read the next one.
    virtual void consume() = 0;

    /// Return the reason for the end of the stream; empty while the stream is open.
    virtual std::optional<StreamEnd> ended() const = 0;

    /// Request one decision from the server. Thread-safe; blocks up to `timeout`. Returns an error message, or an empty
    /// string on success.
    virtual std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) = 0;
};

/// Function that opens a stream. The stream calls `wake` after each received message, after each completed write and at
/// its end.
using OpenStream = std::function<std::unique_ptr<Stream>(std::function<void()> wake)>;

/// Return a factory of gRPC streams to the server in the config.
/// \throws ConfigError if a certificate or key cannot be read.
OpenStream grpcStreams(const ServerConfig& config);

}  // namespace rl4sys::client
