#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

// Each kernel is an always-inlined template over the vector width. It is compiled for the build target and, on x86,
// also for AVX2 with FMA and in some cases for AVX-512. The best version is selected at run time, so that one binary
// runs on every processor.
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

/// Vectorized float32 arithmetic.
namespace rl4sys::kernels {

/// Rows and weights are padded to a multiple of this number of floats. The padding never affects results.
inline constexpr std::size_t padding = 8;

constexpr std::size_t padded(std::size_t count) noexcept { return (count + padding - 1) / padding * padding; }

/// Allocator that aligns to cache lines, so that padded rows of weights cross as few cache lines as possible.
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

/// SIMD types: `Number` holds one float per lane, `Bits` one integer of the same size.
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

// Vectors are passed by reference: passed by value, their calling convention depends on the instruction set.
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

/// Clamp `x` to low..high; NaN stays NaN.
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

/// Return the version of `Kernel` for this processor.
template <typename Kernel, typename... Arguments>
auto select() -> void (*)(Arguments...) {
#if defined(RL4SYS_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &runWithAvx2<Kernel, Arguments...>;
#endif
    return &runPortably<Kernel, Arguments...>;
}

/// Like `select`, but can return the AVX-512 version. For kernels with enough arithmetic to outweigh the lower clock
/// frequency of AVX-512.
template <typename Kernel, typename... Arguments>
auto selectWidest() -> void (*)(Arguments...) {
#if defined(RL4SYS_AVX512)
    if (__builtin_cpu_supports("avx512f")) return &runWithAvx512<Kernel, Arguments...>;
#endif
    return select<Kernel, Arguments...>();
}

}  // namespace rl4sys::kernels
