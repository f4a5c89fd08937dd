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

/// Connection to a server, used by the thread that opened it. Only the destructor and `act` block.
class Stream {
public:
    virtual ~Stream() = default;

    /// True if `send` can take a message now.
    virtual bool ready() const = 0;
    virtual void send(v1::ClientMessage message) = 0;

    /// Received message; null if there is none. The next message is read after `consume`.
    virtual const v1::ServerMessage* received() = 0;
    virtual void consume() = 0;

    /// Reason for the end of the stream; empty while it is open.
    virtual std::optional<StreamEnd> ended() const = 0;

    /// Request one decision from the server. Thread-safe; blocks up to `timeout`. Returns an error message, or an empty
    /// string on success.
    virtual std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) = 0;
};

/// Factory of streams. A stream calls `wake` after each received message, completed write and at its end.
using OpenStream = std::function<std::unique_ptr<Stream>(std::function<void()> wake)>;

/// Return a factory of gRPC streams to the server in the config.
/// \throws ConfigError if a certificate or key cannot be read.
OpenStream grpcStreams(const ServerConfig& config);

}  // namespace rl4sys::client
