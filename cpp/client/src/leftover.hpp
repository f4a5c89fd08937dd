#pragma once

#include <functional>
#include <memory>
#include <string>

#include "conversation.hpp"

namespace rl4sys::client {

/// The spool of a process that died, sent over a stream of its own, beside the living conversation.
class Leftover {
public:
    enum class Progress {
        underWay,
        over,  ///< All is acknowledged and removed, or set aside because the server will not have it.
        lost,  ///< The connection failed before; what is left stays for another time.
    };

    /// \param wake called whenever there is something to do.
    Leftover(std::unique_ptr<Spool> spool, const OpenStream& openStream, std::function<void()> wake, Log log);
    ~Leftover();

    /// Do what can be done now.
    Progress advance();

private:
    bool hear(const v1::ServerMessage& message);
    void setAside(const std::string& reason);

    Spool& spool_;
    Outbox outbox_;
    Log log_;
    std::unique_ptr<Conversation> talk_;  ///< Null if there is nothing to say.
    bool refused_ = false;
    Clock::time_point heardAt_ = Clock::now();
};

}  // namespace rl4sys::client
