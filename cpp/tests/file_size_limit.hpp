#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>

namespace rl4sys::client {

/// Limits the size of files written by this process while the object exists. Simulates a full disk, even for root.
class FileSizeLimit {
public:
    explicit FileSizeLimit(std::size_t bytes) : formerAction_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &former_);
        const rlimit limit{bytes, former_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &former_);
        std::signal(SIGXFSZ, formerAction_);
    }

private:
    rlimit former_{};
    void (*formerAction_)(int);
};

}  // namespace rl4sys::client
