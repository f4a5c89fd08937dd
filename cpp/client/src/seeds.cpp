#include "seeds.hpp"

#include <array>
#include <cstddef>

namespace rl4sys::client {

namespace {

using Word = std::uint32_t;
using Pool = std::array<Word, 4>;

constexpr Word folded(Word value) noexcept { return value ^ (value >> 16); }

/// Hash function of numpy's SeedSequence. Its constant changes after every hashed word.
class Hash {
public:
    constexpr Hash(Word constant, Word multiplier) noexcept : constant_(constant), multiplier_(multiplier) {}

    constexpr Word operator()(Word value) noexcept {
        value ^= constant_;
        constant_ *= multiplier_;
        return folded(value * constant_);
    }

private:
    Word constant_;
    Word multiplier_;
};

constexpr Word mixed(Word left, Word right) noexcept { return folded(0xca01f9ddU * left - 0x4973f715U * right); }

constexpr Word lowWord(std::uint64_t value) noexcept { return static_cast<Word>(value); }
constexpr Word highWord(std::uint64_t value) noexcept { return static_cast<Word>(value >> 32); }

/// Mix the seed into all words of the pool, as `SeedSequence([seed, 0])` does. The second entropy word, 0, is equal to
/// the zero padding of the pool.
constexpr Pool mixedPool(std::uint64_t seed) noexcept {
    Hash hash(0x43b0d7e5U, 0x931e8875U);
    Pool pool = {lowWord(seed), highWord(seed), 0, 0};
    for (Word& word : pool) word = hash(word);
    for (std::size_t source = 0; source < pool.size(); ++source) {
        for (std::size_t target = 0; target < pool.size(); ++target) {
            if (source != target) pool[target] = mixed(pool[target], hash(pool[source]));
        }
    }
    return pool;
}

}  // namespace

std::uint64_t drawsKey(std::uint64_t seed) noexcept {
    Hash hash(0x8b51f9ddU, 0x58f38dedU);
    Pool state = mixedPool(seed);
    for (Word& word : state) word = hash(word);
    return state[2] | std::uint64_t{state[3]} << 32;
}

}  // namespace rl4sys::client
