#pragma once

#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "store.hpp"

namespace block_cache {

/// Small store in a temporary directory, removed by the destructor.
class TemporaryStore {
public:
    static constexpr StoreShape shape = {.blocks = 64, .valuesPerBlock = 8, .valueBytes = 128};

    TemporaryStore() {
        std::string name = (std::filesystem::temp_directory_path() / "block_cache_XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create a temporary directory");
        directory_ = name;
        BlockStore::create(path(), shape);
    }
    ~TemporaryStore() { std::filesystem::remove_all(directory_); }
    TemporaryStore(const TemporaryStore&) = delete;
    TemporaryStore& operator=(const TemporaryStore&) = delete;

    std::filesystem::path path() const { return directory_ / "store"; }

private:
    std::filesystem::path directory_;
};

/// Return the expected value of `key`.
inline std::string valueOf(Key key) {
    std::string value(TemporaryStore::shape.valueBytes, '\0');
    writeValue(key, value);
    return value;
}

}  // namespace block_cache
