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

/// Address and credentials of a server.
struct Endpoint {
    std::string address;
    std::string token;
    std::shared_ptr<grpc::ChannelCredentials> credentials;

    std::shared_ptr<grpc::Channel> connect() const {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(maxMessageBytes);
        arguments.SetMaxSendMessageSize(maxMessageBytes);
        // Keepalive pings detect a network that silently drops packets.
        arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepaliveMilliseconds);
        arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepaliveTimeoutMilliseconds);
        // One attempt per channel: the link controls retries.
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, keepaliveTimeoutMilliseconds);
        arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
        return grpc::CreateCustomChannel(address, credentials, arguments);
    }

    void addCredentials(grpc::ClientContext& context) const {
        if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    }
};

StreamEnd::Kind kindOf(grpc::StatusCode code) noexcept {
    if (code == grpc::StatusCode::UNAUTHENTICATED) return StreamEnd::Kind::unauthenticated;
    if (code == grpc::StatusCode::PERMISSION_DENIED) return StreamEnd::Kind::denied;
    return StreamEnd::Kind::lost;
}

/// gRPC bidirectional stream with at most one message in flight per direction.
class GrpcStream final : public Stream, private grpc::ClientBidiReactor<v1::ClientMessage, v1::ServerMessage> {
public:
    GrpcStream(const Endpoint& endpoint, std::function<void()> wake)
        : endpoint_(endpoint), wake_(std::move(wake)), stub_(v1::Training::NewStub(endpoint.connect())) {
        endpoint_.addCredentials(context_);
        stub_->async()->Connect(&context_, this);
        // gRPC requires a hold if reads and writes are started outside of the reactor's callbacks.
        AddHold();
        StartRead(&incoming_);
        StartCall();
    }

    ~GrpcStream() override {
        context_.TryCancel();
        std::unique_lock lock(mutex_);
        releaseHold(lock);
        done_.wait(lock, [this] { return end_.has_value(); });
    }

    bool ready() const override {
        const std::lock_guard lock(mutex_);
        return !writing_ && open_;
    }

    void send(v1::ClientMessage message) override {
        const std::lock_guard lock(mutex_);
        if (!open_) return;
        outgoing_ = std::move(message);
        writing_ = true;
        StartWrite(&outgoing_);
    }

    const v1::ServerMessage* received() override {
        const std::lock_guard lock(mutex_);
        return hasMessage_ ? &incoming_ : nullptr;
    }

    void consume() override {
        const std::lock_guard lock(mutex_);
        hasMessage_ = false;
        if (open_) StartRead(&incoming_);
    }

    std::optional<StreamEnd> ended() const override {
        const std::lock_guard lock(mutex_);
        return end_;
    }

    std::string act(const v1::ActRequest& request, Seconds timeout, v1::ActReply& reply) override {
        grpc::ClientContext context;
        endpoint_.addCredentials(context);
        const auto limit = std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
        context.set_deadline(std::chrono::system_clock::now() + limit);
        const grpc::Status status = stub_->Act(&context, request, &reply);
        return status.ok() ? "" : "the server returned no action: " + status.error_message();
    }

private:
    void OnReadDone(bool ok) override {
        {
            std::unique_lock lock(mutex_);
            hasMessage_ = ok;
            if (!ok) releaseHold(lock);
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
        // Notify under the lock: another thread may destroy the stream as soon as `end_` is set and the lock is free.
        const std::lock_guard lock(mutex_);
        end_ = StreamEnd{kindOf(status.error_code()), status.error_message()};
        wake_();
        done_.notify_all();
    }

    /// Allow gRPC to finish the call. Afterwards, no more reads or writes are started.
    void releaseHold(std::unique_lock<std::mutex>&) {
        if (std::exchange(open_, false)) RemoveHold();
    }

    const Endpoint& endpoint_;
    std::function<void()> wake_;
    std::unique_ptr<v1::Training::Stub> stub_;
    grpc::ClientContext context_;
    mutable std::mutex mutex_;
    std::condition_variable done_;
    v1::ClientMessage outgoing_;
    v1::ServerMessage incoming_;
    bool open_ = true;
    bool writing_ = false;
    bool hasMessage_ = false;
    std::optional<StreamEnd> end_;
};

std::string readFile(const std::string& path, const std::string& setting) {
    if (path.empty()) return {};
    std::ifstream file(path, std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    if (!file || content.empty()) throw ConfigError(setting + " is '" + path + "', but the file cannot be read");
    if (content.find("-----BEGIN ") == content.npos) {
        throw ConfigError(setting + " is '" + path + "', but the file is not in PEM format (no -----BEGIN ...----- "
                          "line)");
    }
    return content;
}

std::shared_ptr<grpc::ChannelCredentials> credentialsOf(const ServerConfig& config) {
    if (!config.tls) return grpc::InsecureChannelCredentials();
    const TlsConfig& tls = *config.tls;
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = readFile(tls.ca, "server.tls.ca");
    options.pem_cert_chain = readFile(tls.cert, "server.tls.cert");
    options.pem_private_key = readFile(tls.key, "server.tls.key");
    return grpc::SslCredentials(options);
}

}  // namespace

OpenStream grpcStreams(const ServerConfig& config) {
    // Keep gRPC initialized for the lifetime of the process: its shutdown can take seconds after large messages.
    [[maybe_unused]] static const bool initialized = (grpc_init(), true);
    const auto endpoint =
        std::make_shared<const Endpoint>(Endpoint{config.address, config.token, credentialsOf(config)});
    return [endpoint](std::function<void()> wake) -> std::unique_ptr<Stream> {
        return std::make_unique<GrpcStream>(*endpoint, std::move(wake));
    };
}

}  // namespace rl4sys::client
