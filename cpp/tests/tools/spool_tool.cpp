/// Program that writes and reads spools, for tests of the compatibility with the Python client.
///
///     spool_tool leave <directory> <memoryBytes> <spoolBytes> <count> die|persist|stay
///     spool_tool take <home>
///
/// `leave` puts `count` trajectories into an outbox with a spool in `directory`, then exits immediately (die), after
/// writing all trajectories to disk (persist), or when standard input is closed (stay). `take` prints and deletes the
/// trajectories of all abandoned spools in `home`.

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "outbox.hpp"

namespace {

using namespace rl4sys::client;

constexpr std::array<float, 7> rewards{};

/// Return content whose length and bytes depend on the sequence number. Lengths include 0.
std::string contentOf(const Recording& recording) {
    std::string content(recording.sequence * 37 % 1500, '\0');
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(recording.sequence + i);
    return content;
}

void fill(Outbox& outbox, std::uint64_t count) {
    for (std::uint64_t sequence = 1; sequence <= count; ++sequence) {
        auto recording = std::make_unique<Recording>();
        recording->sequence = sequence;
        recording->columns.reward = std::span(rewards).first(1 + sequence % 7);
        outbox.put(std::move(recording));
        outbox.encodeIncoming();
    }
}

void leave(const std::filesystem::path& directory, std::span<char*> sizes, std::string_view end) {
    const auto log = [](rl4sys::LogLevel, std::string_view message) { std::cerr << message << '\n'; };
    auto spool = std::make_unique<Spool>(directory, std::stoull(sizes[1]), "hello from C++");
    Outbox outbox(std::stoull(sizes[0]), std::move(spool), contentOf, log);
    fill(outbox, std::stoull(sizes[2]));
    std::cout << outbox.waitingSteps() << " steps" << std::endl;
    if (end == "persist") outbox.persist();
    if (end == "stay") std::cin.get();
    std::_Exit(EXIT_SUCCESS);
}

void take(Spool& spool) {
    std::cout << "hello " << spool.hello() << '\n' << "waiting " << spool.waitingSteps() << '\n';
    while (const std::optional<EncodedTrajectory> trajectory = spool.readNext()) {
        const auto* bytes = reinterpret_cast<const Bytef*>(trajectory->content.data());
        std::cout << "trajectory " << trajectory->sequence << ' ' << trajectory->steps << ' '
                  << trajectory->content.size() << ' '
                  << crc32_z(0, bytes, trajectory->content.size()) << '\n';
    }
    std::cout << "lost " << spool.lostSteps() << '\n';
    spool.removeUpTo(std::numeric_limits<std::uint64_t>::max());
    spool.close();
}

}  // namespace

int main(int count, char** words) {
    const std::span arguments(words, static_cast<std::size_t>(count));
    const std::string_view command = count > 1 ? words[1] : "";
    if (command == "leave" && count == 7) leave(arguments[2], arguments.subspan(3, 3), arguments[6]);
    if (command != "take" || count != 3) return EXIT_FAILURE;
    for (const std::filesystem::path& directory : spoolDirectories(arguments[2])) {
        if (const std::unique_ptr<Spool> spool = Spool::openAbandoned(directory)) take(*spool);
    }
    return EXIT_SUCCESS;
}
