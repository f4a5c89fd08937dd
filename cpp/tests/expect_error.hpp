#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace rl4sys::client {

/// Return the message of the std::invalid_argument that `call` throws. The test fails if `call` does not throw it.
template <typename Call>
std::string errorOf(Call call) {
    try {
        call();
    } catch (const std::invalid_argument& problem) {
        return problem.what();
    }
    ADD_FAILURE() << "no std::invalid_argument was thrown";
    return "";
}

/// Expect that `call` throws a std::invalid_argument with `text` in a message of less than 1000 bytes.
template <typename Call>
void expectError(Call call, const std::string& text) {
    const std::string message = errorOf(call);
    EXPECT_NE(message.find(text), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000U) << message;
}

}  // namespace rl4sys::client
