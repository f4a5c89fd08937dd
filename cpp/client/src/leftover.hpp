#pragma once

#include <functional>
#include <memory>
#include <string>

#include "conversation.hpp"

namespace rl4sys::client {

/// The spool of a process that died, sent over a stream of its own.
class Leftover {
public:
    Leftover(std::unique_ptr<Spool> spool, OpenStream openStream, Log log);

    /// Until all is acknowledged and removed, or refused and set aside; false if the connection fails before.
    /// \param goesOn asked now and then; send no more when it says no.
    bool send(const std::function<bool()>& goesOn);

private:
    void converse(Conversation& talk, const std::function<bool()>& goesOn);
    bool hear(const v1::ServerMessage& message, Conversation& talk);
    void setAside(const std::string& reason);

    Spool& spool_;
    Outbox outbox_;
    OpenStream openStream_;
    Log log_;
    Bell bell_;
    bool refused_ = false;
    Clock::time_point heardAt_ = Clock::now();
};

}  // namespace rl4sys::client
