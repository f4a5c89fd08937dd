#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

// One binary serves every processor: each kernel is an always-inlined template over how many numbers are
// worked on at once, compiled for the build's own target and, on x86, also for AVX2 with FMA and, where it pays, for
// AVX-512. The best one is chosen at run time.
#if defined(__GNUC__)
#define RL4SYS_INLINE inline __attribute__((always_inline))
#define RL4SYS_UNROLL _Pragma("GCC unroll 16")
#else
#define RL4SYS_INLINE inline
#define RL4SYS_UNROLL
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define RL4SYS_AVX2 __attribute__((target("avx2,fma")))
#define RL4SYS_AVX512 __attribute__((target("avx512f,avx2,fma")))
#endif

/// The arithmetic of policy bodies, in float32.
namespace rl4sys::kernels {

/// Rows and weights are padded to a multiple of this many numbers; what the padding holds is never read.
inline constexpr std::size_t padding = 8;

constexpr std::size_t padded(std::size_t count) noexcept { return (count + padding - 1) / padding * padding; }

/// Starts at a cache line's border, so that no padded row of weights straddles one needlessly.
template <typename T>
struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    AlignedAllocator() = default;
    template <typename U>
    AlignedAllocator(const AlignedAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
    void deallocate(T* memory, std::size_t) noexcept { ::operator delete(memory, alignment); }
    bool operator==(const AlignedAllocator&) const noexcept { return true; }
};

using Floats = std::vector<float, AlignedAllocator<float>>;

/// Types that hold several numbers and work on all of them at once; `Bits` is the integer of the same size.
struct Scalar {
    using Number = float;
    using Bits = std::uint32_t;
};
#if defined(__GNUC__)
struct FourLanes {
    using Number = float __attribute__((vector_size(16)));
    using Bits = std::uint32_t __attribute__((vector_size(16)));
};
struct EightLanes {
    using Number = float __attribute__((vector_size(32)));
    using Bits = std::uint32_t __attribute__((vector_size(32)));
};
struct SixteenLanes {
    using Number = float __attribute__((vector_size(64)));
    using Bits = std::uint32_t __attribute__((vector_size(64)));
};
using Portable = FourLanes;
#else
using Portable = Scalar;
#endif

// Numbers are passed by reference only: by value, the calling convention depends on the instruction set.
template <typename To, typename From>
RL4SYS_INLINE void copyBits(To& to, const From& from) noexcept {
    static_assert(sizeof(To) == sizeof(From));
    std::memcpy(&to, &from, sizeof(To));
}

template <typename Number>
RL4SYS_INLINE void load(Number& number, const float* memory) noexcept {
    std::memcpy(&number, memory, sizeof(Number));
}

template <typename Number>
RL4SYS_INLINE void store(float* memory, const Number& number) noexcept {
    std::memcpy(memory, &number, sizeof(Number));
}

/// Bring `x` into low..high; a NaN stays a NaN.
template <typename Number>
RL4SYS_INLINE void clip(Number& x, float low, float high) noexcept {
    const Number lowest = Number{} + low;
    const Number highest = Number{} + high;
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
}

template <typename Kernel, typename... Arguments>
void runPortably(Arguments... arguments) {
    Kernel::template run<Portable>(arguments...);
}

#if defined(RL4SYS_AVX2)
template <typename Kernel, typename... Arguments>
RL4SYS_AVX2 void runWithAvx2(Arguments... arguments) {
    Kernel::template run<EightLanes>(arguments...);
}

template <typename Kernel, typename... Arguments>
RL4SYS_AVX512 void runWithAvx512(Arguments... arguments) {
    Kernel::template run<SixteenLanes>(arguments...);
}
#endif

/// The form of `Kernel` that suits this processor.
template <typename Kernel, typename... Arguments>
auto select() -> void (*)(Arguments...) {
#if defined(RL4SYS_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &runWithAvx2<Kernel, Arguments...>;
#endif
    return &runPortably<Kernel, Arguments...>;
}

/// The same for a kernel of arithmetic so dense that the widest instructions gain more than the clock they cost.
template <typename Kernel, typename... Arguments>
auto selectWidest() -> void (*)(Arguments...) {
#if defined(RL4SYS_AVX512)
    if (__builtin_cpu_supports("avx512f")) return &runWithAvx512<Kernel, Arguments...>;
#endif
    return select<Kernel, Arguments...>();
}

}  // namespace rl4sys::kernels
