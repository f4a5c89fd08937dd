#include "lunar_lander.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <stdexcept>
#include <string>
#include <tuple>

#include <box2d/box2d.h>

#include "rl4sys/core/draws.hpp"

// Lengths are in pixels, as in Gymnasium; `scale` pixels are one unit of Box2D. Arithmetic uses double, as in
// Python, and is rounded to float only for Box2D.

namespace lunar {

namespace {

constexpr int stepsPerSecond = 50;
constexpr int velocityIterations = 180;
constexpr int positionIterations = 60;
// Box2D 2.4 solves the limit and the anchor of a joint alternately; Box2D 2.3, which Gymnasium uses, solves both
// together. Ground contact therefore needs more iterations. Without them, the lander rocks for about 15 more steps
// before it rests.
constexpr int groundVelocityIterations = 3 * velocityIterations;

constexpr double scale = 30.0;
constexpr double viewWidth = 600 / scale;
constexpr double viewHeight = 400 / scale;
constexpr double padHeight = viewHeight / 4;

constexpr std::uint16_t groundCategory = 0x0001;
constexpr std::uint16_t hullCategory = 0x0010;
constexpr std::uint16_t legCategory = 0x0020;

constexpr double maxPush = 1000.0;

constexpr double legAway = 20 / scale;
constexpr double legDown = 18 / scale;
constexpr double legTilt = 0.05;
constexpr double legSpringTorque = 40.0;
constexpr double legSpringSpeed = 0.3;
constexpr double legFoldedAngle = 0.9;
constexpr double legSpreadAngle = 0.4;

constexpr double mainEnginePower = 13.0;
constexpr double mainEngineDown = 4 / scale;
constexpr double mainEngineFuel = 0.30;

constexpr double sideEnginePower = 0.6;
constexpr double sideEngineAway = 12 / scale;
constexpr double sideEngineFuel = 0.03;

constexpr double failureReward = -100.0;
constexpr double landingReward = 100.0;

/// Offset of the point where the impulse of an engine acts: `lean` is multiplied by the sine of the hull's angle, `up`
/// by the cosine. For an engine that is fixed to the hull, both would be equal.
struct Mount {
    double lean = 0.0;
    double up = 0.0;
};
constexpr Mount sideEngines{.lean = 17 / scale, .up = 14 / scale};  // Different, as in Gymnasium.

constexpr double left = -1.0;
constexpr double right = 1.0;

b2Vec2 vector(double x, double y) { return {static_cast<float>(x), static_cast<float>(y)}; }

/// Observation in double precision, used for rewards.
using State = std::array<double, std::tuple_size_v<Observation>>;

/// Return the shaping potential of a state. The reward of a step is the increase of the potential minus the fuel cost.
double shaping(const State& state) {
    const auto [x, y, speedX, speedY, angle, turning, leftTouches, rightTouches] = state;
    return -100 * std::sqrt(x * x + y * y) - 100 * std::sqrt(speedX * speedX + speedY * speedY) -
           100 * std::abs(angle) + 10 * leftTouches + 10 * rightTouches;
}

/// Random terrain: smoothed heights at the borders between equal sections, flat around the landing pad.
class Terrain {
public:
    static constexpr std::size_t borders = 11;

    explicit Terrain(rl4sys::Draws& draws) {
        for (double& height : rough_) height = draws.uniform() * (viewHeight / 2);
        constexpr std::size_t middle = borders / 2;
        std::fill(&rough_[middle - 2], &rough_[middle + 3], padHeight);
    }

    b2Vec2 border(std::size_t index) const {
        const std::size_t before = (index + rough_.size() - 1) % rough_.size();
        const double smooth = 0.33 * (rough_[before] + rough_[index] + rough_[index + 1]);
        return vector(viewWidth / (borders - 1) * static_cast<double>(index), smooth);
    }

private:
    std::array<double, borders + 1> rough_;
};

/// Wind strength over time: a non-periodic function with values between -1 and 1 that starts at a random phase.
class Gust {
public:
    explicit Gust(rl4sys::Draws& draws) : moment_(std::floor(draws.uniform() * 2 * 9999) - 9999) {}

    double next() {
        const double strength = std::tanh(std::sin(0.02 * moment_) + std::sin(std::numbers::pi * 0.01 * moment_));
        ++moment_;
        return strength;
    }

private:
    double moment_;
};

/// Wind that acts on the hull: a horizontal force and a torque.
struct Gusts {
    explicit Gusts(rl4sys::Draws& draws) : push(draws), turn(draws) {}

    Gust push;
    Gust turn;
};

struct Leg {
    b2Body* body = nullptr;
    b2RevoluteJoint* joint = nullptr;
    bool touches = false;

    /// Enable the limit of the joint only while the joint is beyond its limit. Box2D 2.4 stops a joint before the
    /// limit. Box2D 2.3, which Gymnasium uses, lets the joint pass the limit for one step, so that hard landings fold
    /// the legs further.
    void limit() {
        const float angle = joint->GetJointAngle();
        joint->EnableLimit(angle <= joint->GetLowerLimit() || angle >= joint->GetUpperLimit());
    }
};

}  // namespace

/// One flight in its own Box2D world.
class LunarLander::Flight final : private b2ContactListener {
public:
    Flight(const Settings& settings, std::uint64_t seed)
        : settings_(settings), draws_{.key = seed}, world_(vector(0, settings.gravity)) {
        world_.SetContactListener(this);
        addGround();
        addHull();
        pushHull();
        if (settings_.wind) gusts_.emplace(draws_);
        addLeg(legs_[0], left);
        addLeg(legs_[1], right);
    }

    StepResult step(Action action) {
        if (gusts_ && !legs_[0].touches && !legs_[1].touches) applyWind();
        const double fuel = fire(action);
        for (Leg& leg : legs_) leg.limit();
        world_.Step(1.0f / stepsPerSecond, hasTouched_ ? groundVelocityIterations : velocityIterations,
                    positionIterations);
        return makeResult(observe(), fuel);
    }

private:
    void addGround() {
        ground_ = addBody(b2_staticBody, vector(0, 0), 0);
        addEdge(vector(0, 0), vector(viewWidth, 0), 0.2f);
        const Terrain terrain(draws_);
        for (std::size_t i = 0; i + 1 < Terrain::borders; ++i) addEdge(terrain.border(i), terrain.border(i + 1), 0.1f);
    }

    void addEdge(b2Vec2 from, b2Vec2 to, float friction) {
        b2EdgeShape edge;
        edge.SetTwoSided(from, to);
        b2FixtureDef fixture;
        fixture.shape = &edge;
        fixture.friction = friction;
        fixture.filter.categoryBits = groundCategory;
        ground_->CreateFixture(&fixture);
    }

    void addHull() {
        constexpr std::array<std::array<double, 2>, 6> outline{
            {{-14, 17}, {-17, 0}, {-17, -10}, {17, -10}, {17, 0}, {14, 17}}};
        std::array<b2Vec2, outline.size()> corners;
        std::transform(outline.begin(), outline.end(), corners.begin(),
                       [](const auto& corner) { return vector(corner[0] / scale, corner[1] / scale); });
        b2PolygonShape shape;
        shape.Set(corners.data(), static_cast<int>(corners.size()));
        hull_ = addBody(b2_dynamicBody, vector(viewWidth / 2, viewHeight), 0);
        addPart(*hull_, shape, {.density = 5.0f, .friction = 0.1f, .category = hullCategory});
    }

    void pushHull() {
        const double x = between(-maxPush, maxPush);
        const double y = between(-maxPush, maxPush);
        hull_->ApplyForceToCenter(vector(x, y), true);
    }

    void addLeg(Leg& leg, double side) {
        b2PolygonShape shape;
        shape.SetAsBox(static_cast<float>(2 / scale), static_cast<float>(8 / scale));
        leg.body = addBody(b2_dynamicBody, vector(viewWidth / 2 - side * legAway, viewHeight), side * legTilt);
        addPart(*leg.body, shape, {.density = 1.0f, .friction = 0.2f, .category = legCategory});
        b2RevoluteJointDef joint = spring(side);
        joint.bodyA = hull_;
        joint.bodyB = leg.body;
        leg.joint = static_cast<b2RevoluteJoint*>(world_.CreateJoint(&joint));
    }

    /// Return a joint whose motor acts as a spring: it holds the leg spread, and a strong force can fold the leg.
    static b2RevoluteJointDef spring(double side) {
        b2RevoluteJointDef joint;
        joint.localAnchorB = vector(side * legAway, legDown);
        joint.referenceAngle = static_cast<float>(side * legTilt);
        joint.enableMotor = true;
        joint.maxMotorTorque = static_cast<float>(legSpringTorque);
        joint.motorSpeed = static_cast<float>(side * legSpringSpeed);
        joint.lowerAngle = static_cast<float>(side == left ? legSpreadAngle : -legFoldedAngle);
        joint.upperAngle = static_cast<float>(side == left ? legFoldedAngle : -legSpreadAngle);
        return joint;
    }

    b2Body* addBody(b2BodyType type, b2Vec2 position, double angle) {
        b2BodyDef body;
        body.type = type;
        body.position = position;
        body.angle = static_cast<float>(angle);
        return world_.CreateBody(&body);
    }

    struct Material {
        float density;
        float friction;
        std::uint16_t category;
    };

    /// Add a part of the lander. Parts collide with the ground, but not with each other.
    static void addPart(b2Body& body, const b2Shape& shape, const Material& material) {
        b2FixtureDef fixture;
        fixture.shape = &shape;
        fixture.density = material.density;
        fixture.friction = material.friction;
        fixture.filter.categoryBits = material.category;
        fixture.filter.maskBits = groundCategory;
        body.CreateFixture(&fixture);
    }

    void BeginContact(b2Contact* contact) override {
        crashed_ = crashed_ || involves(*contact, hull_);
        hasTouched_ = true;
        setTouching(*contact, true);
    }

    void EndContact(b2Contact* contact) override { setTouching(*contact, false); }

    void setTouching(b2Contact& contact, bool touches) {
        for (Leg& leg : legs_) {
            if (involves(contact, leg.body)) leg.touches = touches;
        }
    }

    static bool involves(b2Contact& contact, const b2Body* body) {
        return contact.GetFixtureA()->GetBody() == body || contact.GetFixtureB()->GetBody() == body;
    }

    void applyWind() {
        hull_->ApplyForceToCenter(vector(gusts_->push.next() * settings_.wind->power, 0), true);
        hull_->ApplyTorque(static_cast<float>(gusts_->turn.next() * settings_.wind->turbulence), true);
    }

    /// Fire the engine of the action. Returns the fuel cost.
    double fire(Action action) {
        // Draw even if no engine fires, so that the random numbers of a step do not depend on earlier actions.
        const double first = between(-1, 1) / scale;
        const double second = between(-1, 1) / scale;
        switch (action) {
            case fireMain:
                thrust(mainEngineDown + 2 * first, second, mainEnginePower, Mount{});
                return mainEngineFuel;
            case fireLeft:
            case fireRight: {
                const double side = action == fireLeft ? left : right;
                thrust(first, 3 * second + side * sideEngineAway, sideEnginePower, sideEngines);
                return sideEngineFuel;
            }
            case coast:
                break;
        }
        return 0.0;
    }

    /// Apply an impulse that pushes the hull away from the point at `down` and `across` relative to its center. The
    /// impulse is proportional to the distance of the point.
    void thrust(double down, double across, double power, const Mount& mount) {
        const double sine = std::sin(static_cast<double>(hull_->GetAngle()));
        const double cosine = std::cos(static_cast<double>(hull_->GetAngle()));
        const double x = sine * down - cosine * across;
        const double y = -cosine * down - sine * across;
        const b2Vec2 middle = hull_->GetPosition();
        const b2Vec2 point = vector(middle.x + x - sine * mount.lean, middle.y + y + cosine * mount.up);
        hull_->ApplyLinearImpulse(vector(-x * power, -y * power), point, true);
    }

    State observe() const {
        const b2Vec2 position = hull_->GetPosition();
        const b2Vec2 velocity = hull_->GetLinearVelocity();
        return {(position.x - viewWidth / 2) / (viewWidth / 2),
                (position.y - (padHeight + legDown)) / (viewHeight / 2),
                velocity.x * (viewWidth / 2) / stepsPerSecond,
                velocity.y * (viewHeight / 2) / stepsPerSecond,
                hull_->GetAngle(),
                20.0 * hull_->GetAngularVelocity() / stepsPerSecond,
                legs_[0].touches ? 1.0 : 0.0,
                legs_[1].touches ? 1.0 : 0.0};
    }

    StepResult makeResult(const State& state, double fuel) {
        const double now = shaping(state);
        const double gained = shaping_ ? now - *shaping_ : 0.0;
        shaping_ = now;
        StepResult result{.observation = {}, .reward = gained - fuel, .outcome = outcome(state)};
        if (result.terminated()) result.reward = result.outcome == Outcome::landed ? landingReward : failureReward;
        std::transform(state.begin(), state.end(), result.observation.begin(),
                       [](double number) { return static_cast<float>(number); });
        return result;
    }

    Outcome outcome(const State& state) const {
        if (!hull_->IsAwake()) return Outcome::landed;
        if (crashed_) return Outcome::crashed;
        return std::abs(state[0]) >= 1.0 ? Outcome::flewAway : Outcome::flying;
    }

    double between(double low, double high) { return low + (high - low) * draws_.uniform(); }

    Settings settings_;
    rl4sys::Draws draws_;
    b2World world_;
    b2Body* ground_ = nullptr;
    b2Body* hull_ = nullptr;
    std::array<Leg, 2> legs_;
    std::optional<Gusts> gusts_;
    std::optional<double> shaping_;
    bool hasTouched_ = false;
    bool crashed_ = false;
};

LunarLander::LunarLander(Settings settings) : settings_(settings) {}
LunarLander::~LunarLander() = default;
LunarLander::LunarLander(LunarLander&&) noexcept = default;
LunarLander& LunarLander::operator=(LunarLander&&) noexcept = default;

Observation LunarLander::reset(std::uint64_t seed) {
    flight_ = std::make_unique<Flight>(settings_, seed);
    return flight_->step(coast).observation;
}

StepResult LunarLander::step(int action) {
    if (!flight_) throw std::logic_error("step was called before the first reset");
    if (action < 0 || action >= actionCount) {
        throw std::out_of_range("action " + std::to_string(action) + " is invalid; expected 0 to 3");
    }
    return flight_->step(static_cast<Action>(action));
}

}  // namespace lunar
