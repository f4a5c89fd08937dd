#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace rl4sys::client {

/// What a call that must be refused says; empty, and a failure, if it is not.
template <typename Call>
std::string refusalOf(Call call) {
    try {
        call();
    } catch (const std::invalid_argument& problem) {
        return problem.what();
    }
    ADD_FAILURE() << "it was not refused";
    return "";
}

/// Expect that `call` is refused with these words among others, and in few of them.
template <typename Call>
void expectRefusal(Call call, const std::string& words) {
    const std::string said = refusalOf(call);
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_LT(said.size(), 1000U) << said;
}

}  // namespace rl4sys::client
