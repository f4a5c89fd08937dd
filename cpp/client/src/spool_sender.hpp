#pragma once

#include <functional>
#include <memory>
#include <string>

#include "connection.hpp"

namespace rl4sys::client {

/// Sends the spool of a terminated client instance over its own stream, next to the main connection.
class SpoolSender {
public:
    enum class Progress {
        sending,
        done,  ///< All trajectories are acknowledged and deleted, or the server refused the spool.
        lost,  ///< The connection failed; the rest stays on disk.
    };

    /// \param wake called when `advance` has something to do.
    SpoolSender(std::unique_ptr<Spool> spool, const OpenStream& openStream, std::function<void()> wake, Log log);
    ~SpoolSender();

    /// Process received messages and send as much as possible without waiting.
    Progress advance();

private:
    bool onMessage(const v1::ServerMessage& message);
    void markRefused(const std::string& reason);

    Spool& spool_;
    Outbox outbox_;
    Log log_;
    std::unique_ptr<Connection> connection_;  ///< Null if the spool is unusable.
    bool refused_ = false;
    Clock::time_point lastMessageAt_ = Clock::now();
};

}  // namespace rl4sys::client
