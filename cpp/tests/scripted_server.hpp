#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "delta.hpp"
#include "golden.hpp"
#include "rl4sys/v1/training.grpc.pb.h"

namespace rl4sys::client {

/// Training server on a real socket with scripted behavior.
///
/// By default it welcomes clients, sends a golden model as version 1 and acknowledges all trajectories.
class ScriptedServer final : private v1::Training::Service {
public:
    using Connection = grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>;

    /// Function that sends the first messages to a client after its Hello was received.
    using HelloHandler = std::function<void(Connection&, const v1::Hello&)>;

    explicit ScriptedServer(std::string model = "categorical.safetensors") : model_(std::move(model)) {
        onHello_ = [this](Connection& connection, const v1::Hello&) {
            welcome(connection);
            sendModel(connection, 1);
        };
        start();
    }

    ~ScriptedServer() override { stop(); }

    void setHelloHandler(HelloHandler handler) {
        const std::lock_guard lock(mutex_);
        onHello_ = std::move(handler);
    }

    /// Stop sending acknowledgements.
    void stopAcknowledging() {
        const std::lock_guard lock(mutex_);
        acknowledges_ = false;
    }

    /// Set the handler of Act requests.
    void setActHandler(std::function<grpc::Status(const v1::ActRequest&, v1::ActReply&)> act) {
        const std::lock_guard lock(mutex_);
        act_ = std::move(act);
    }

    std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

    /// Stop immediately, as in a crash.
    void stop() {
        {
            const std::lock_guard lock(mutex_);
            if (context_ != nullptr) context_->TryCancel();
        }
        if (server_) server_->Shutdown(std::chrono::system_clock::now());
        server_.reset();
    }

    void start() {
        grpc::ServerBuilder builder;
        builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(), &port_);
        builder.RegisterService(this);
        server_ = builder.BuildAndStart();
    }

    static void welcome(Connection& connection, std::uint64_t acknowledged = 0) {
        v1::ServerMessage message;
        message.mutable_welcome()->set_lineage("first");
        message.mutable_welcome()->set_acknowledged(acknowledged);
        message.mutable_welcome()->set_max_message_bytes(32 << 20);
        message.mutable_welcome()->set_max_trajectory_steps(10'000);
        connection.Write(message);
    }

    void sendModel(Connection& connection, std::uint64_t version, std::uint64_t wants = 100) const {
        const std::string content = goldenFile(model_);
        v1::ServerMessage message;
        message.mutable_snapshot()->set_version(version);
        message.mutable_snapshot()->set_digest(digest(content));
        message.mutable_snapshot()->set_full(content);
        message.mutable_snapshot()->set_wants(wants);
        connection.Write(message);
    }

    /// Send a model with another version to the connected client. Waits up to 30 seconds for a client.
    void publish(std::uint64_t version) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::seconds(30), [this] { return connection_ != nullptr; });
        sendModel(*connection_, version);
    }

    /// Wait up to 30 seconds until `condition` returns true for the received trajectories. Returns false on timeout.
    bool waitUntil(const std::function<bool(const std::vector<v1::Trajectory>&)>& condition) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return condition(received_); });
    }

    bool waitForSteps(std::size_t steps) {
        return waitUntil([steps](const auto& all) { return stepsOf(all) >= steps; });
    }

    std::vector<v1::Trajectory> received() {
        const std::lock_guard lock(mutex_);
        return received_;
    }

    static std::size_t stepsOf(const std::vector<v1::Trajectory>& trajectories) {
        std::size_t steps = 0;
        for (const v1::Trajectory& trajectory : trajectories) steps += column(trajectory, "reward").shape(0);
        return steps;
    }

    static const v1::Column& column(const v1::Trajectory& trajectory, const std::string& name) {
        for (const v1::Column& column : trajectory.columns()) {
            if (column.name() == name) return column;
        }
        throw std::runtime_error("no column " + name);
    }

private:
    grpc::Status Connect(grpc::ServerContext* context, Connection* connection) override {
        HelloHandler onHello;
        {
            const std::lock_guard lock(mutex_);
            context_ = context;
            onHello = onHello_;
        }
        v1::ClientMessage message;
        if (connection->Read(&message)) onHello(*connection, message.hello());
        {
            const std::lock_guard lock(mutex_);
            connection_ = connection;
            changed_.notify_all();
        }
        while (connection->Read(&message)) onTrajectories(*connection, message);
        const std::lock_guard lock(mutex_);
        connection_ = nullptr;
        context_ = nullptr;
        return grpc::Status::OK;
    }

    grpc::Status Act(grpc::ServerContext*, const v1::ActRequest* request, v1::ActReply* reply) override {
        const std::lock_guard lock(mutex_);
        return act_(*request, *reply);
    }

    void onTrajectories(Connection& connection, const v1::ClientMessage& message) {
        const std::lock_guard lock(mutex_);
        v1::ServerMessage answer;
        for (const std::string& bytes : message.trajectories().trajectory()) {
            v1::Trajectory& trajectory = received_.emplace_back();
            trajectory.ParseFromString(bytes);
            answer.mutable_ack()->set_sequence(trajectory.sequence());
        }
        if (acknowledges_ && answer.has_ack()) connection.Write(answer);
        changed_.notify_all();
    }

    std::string model_;
    std::mutex mutex_;
    std::condition_variable changed_;
    HelloHandler onHello_;
    std::function<grpc::Status(const v1::ActRequest&, v1::ActReply&)> act_;
    bool acknowledges_ = true;
    grpc::ServerContext* context_ = nullptr;
    Connection* connection_ = nullptr;
    std::vector<v1::Trajectory> received_;
    int port_ = 0;
    std::unique_ptr<grpc::Server> server_;
};

}  // namespace rl4sys::client
