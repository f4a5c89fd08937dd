#include "stream.hpp"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>

#include "rl4sys/errors.hpp"
#include "rl4sys/v1/training.grpc.pb.h"
#include "wire.hpp"

namespace rl4sys::client {

namespace {

constexpr int keepaliveMilliseconds = 10'000;
constexpr int keepaliveTimeoutMilliseconds = 5'000;

/// Where a server is and how this client shows who it is.
struct Endpoint {
    std::string address;
    std::string token;
    std::shared_ptr<grpc::ChannelCredentials> credentials;

    std::shared_ptr<grpc::Channel> connect() const {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(maxMessageBytes);
        arguments.SetMaxSendMessageSize(maxMessageBytes);
        // A network that swallows everything is noticed by the pings it does not answer.
        arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepaliveMilliseconds);
        arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepaliveTimeoutMilliseconds);
        // One attempt per channel: when to try again is decided by the link.
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, keepaliveTimeoutMilliseconds);
        arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
        return grpc::CreateCustomChannel(address, credentials, arguments);
    }

    void introduce(grpc::ClientContext& context) const {
        if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    }
};

Ending::Kind kindOf(grpc::StatusCode code) noexcept {
    if (code == grpc::StatusCode::UNAUTHENTICATED) return Ending::Kind::unauthenticated;
    if (code == grpc::StatusCode::PERMISSION_DENIED) return Ending::Kind::denied;
    return Ending::Kind::lost;
}

/// The conversation as gRPC drives it: at most one message on its way in each direction.
class GrpcStream final : public Stream, private grpc::ClientBidiReactor<v1::ClientMessage, v1::ServerMessage> {
public:
    GrpcStream(const Endpoint& endpoint, std::function<void()> wake)
        : endpoint_(endpoint), wake_(std::move(wake)), stub_(v1::Training::NewStub(endpoint.connect())) {
        endpoint_.introduce(context_);
        stub_->async()->Connect(&context_, this);
        // Reads and writes are started from outside of gRPC's own calls.
        AddHold();
        StartRead(&incoming_);
        StartCall();
    }

    ~GrpcStream() override {
        context_.TryCancel();
        std::unique_lock lock(mutex_);
        letGo(lock);
        done_.wait(lock, [this] { return ending_.has_value(); });
    }

    bool ready() const override {
        const std::lock_guard lock(mutex_);
        return !writing_ && held_;
    }

    void send(v1::ClientMessage message) override {
        const std::lock_guard lock(mutex_);
        if (!held_) return;
        outgoing_ = std::move(message);
        writing_ = true;
        StartWrite(&outgoing_);
    }

    const v1::ServerMessage* received() override {
        const std::lock_guard lock(mutex_);
        return arrived_ ? &incoming_ : nullptr;
    }

    void heard() override {
        const std::lock_guard lock(mutex_);
        arrived_ = false;
        if (held_) StartRead(&incoming_);
    }

    std::optional<Ending> ended() const override {
        const std::lock_guard lock(mutex_);
        return ending_;
    }

    std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) override {
        grpc::ClientContext context;
        endpoint_.introduce(context);
        const auto limit = std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
        context.set_deadline(std::chrono::system_clock::now() + limit);
        const grpc::Status status = stub_->Act(&context, request, &reply);
        return status.ok() ? "" : "the server did not decide: " + status.error_message();
    }

private:
    void OnReadDone(bool ok) override {
        {
            std::unique_lock lock(mutex_);
            arrived_ = ok;
            if (!ok) letGo(lock);
        }
        wake_();
    }

    void OnWriteDone(bool) override {
        {
            const std::lock_guard lock(mutex_);
            writing_ = false;
        }
        wake_();
    }

    void OnDone(const grpc::Status& status) override {
        // Called under the lock: the stream may be gone as soon as its end is known.
        const std::lock_guard lock(mutex_);
        ending_ = Ending{kindOf(status.error_code()), status.error_message()};
        wake_();
        done_.notify_all();
    }

    /// Start nothing more, so that gRPC can be done with it.
    void letGo(std::unique_lock<std::mutex>&) {
        if (std::exchange(held_, false)) RemoveHold();
    }

    const Endpoint& endpoint_;
    std::function<void()> wake_;
    std::unique_ptr<v1::Training::Stub> stub_;
    grpc::ClientContext context_;
    mutable std::mutex mutex_;
    std::condition_variable done_;
    v1::ClientMessage outgoing_;
    v1::ServerMessage incoming_;
    bool held_ = true;
    bool writing_ = false;
    bool arrived_ = false;
    std::optional<Ending> ending_;
};

std::string readFile(const std::string& path, const std::string& setting) {
    if (path.empty()) return {};
    std::ifstream file(path, std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    if (!file || content.empty()) throw ConfigError(setting + " is '" + path + "', which cannot be read");
    if (content.find("-----BEGIN ") == content.npos) {
        throw ConfigError(setting + " is '" + path + "', which is not PEM: a text with a line -----BEGIN ...-----");
    }
    return content;
}

std::shared_ptr<grpc::ChannelCredentials> credentialsOf(const ServerSettings& settings) {
    if (!settings.tls) return grpc::InsecureChannelCredentials();
    const TlsSettings& tls = *settings.tls;
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = readFile(tls.ca, "server.tls.ca");
    options.pem_cert_chain = readFile(tls.cert, "server.tls.cert");
    options.pem_private_key = readFile(tls.key, "server.tls.key");
    return grpc::SslCredentials(options);
}

}  // namespace

OpenStream grpcStreams(const ServerSettings& settings) {
    // For the life of the process: gRPC takes seconds to shut down after large messages, and is soon wanted again.
    [[maybe_unused]] static const bool kept = (grpc_init(), true);
    const auto endpoint =
        std::make_shared<const Endpoint>(Endpoint{settings.address, settings.token, credentialsOf(settings)});
    return [endpoint](std::function<void()> wake) -> std::unique_ptr<Stream> {
        return std::make_unique<GrpcStream>(*endpoint, std::move(wake));
    };
}

}  // namespace rl4sys::client
