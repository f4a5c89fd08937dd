#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pace.hpp"
#include "rl4sys/v1/training.pb.h"
#include "settings.hpp"

namespace rl4sys::client {

/// How a connection came to its end.
struct Ending {
    enum class Kind { lost, unauthenticated, denied };

    Kind kind = Kind::lost;
    std::string message;
};

/// One connection to a server, for the thread that opened it. Nothing of it blocks but its end.
class Stream {
public:
    virtual ~Stream() = default;

    /// Whether a message would be taken now.
    virtual bool ready() const = 0;
    virtual void send(v1::ClientMessage message) = 0;

    /// What the server said; null if it said nothing new. The next is read only once this was heard.
    virtual const v1::ServerMessage* received() = 0;
    virtual void heard() = 0;

    /// Why the connection is over; none while it is not.
    virtual std::optional<Ending> ended() const = 0;

    /// One decision by the server, from any thread; blocks up to `timeout`. Why there is none; empty if there is.
    virtual std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) = 0;
};

/// Opens connections; each calls `wake` whenever there is something to hear, or room to send.
using OpenStream = std::function<std::unique_ptr<Stream>(std::function<void()> wake)>;

/// Connections to the server that the settings name, over gRPC.
/// \throws ConfigError if a certificate or key cannot be read.
OpenStream grpcStreams(const ServerSettings& settings);

}  // namespace rl4sys::client
