#pragma once

#include <functional>
#include <memory>
#include <string>

#include "connection.hpp"

namespace rl4sys::client {

/// Sends the spool of a terminated client instance on a separate stream, at the same time as the main connection.
class SpoolSender {
public:
    enum class Progress {
        sending,  ///< Some trajectories are not acknowledged yet.
        done,     ///< All trajectories are acknowledged, or the spool was refused.
        lost,     ///< The connection failed; trajectories without acknowledgement stay on disk.
    };

    /// \param wake function that is called when `advance` should be called again.
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
