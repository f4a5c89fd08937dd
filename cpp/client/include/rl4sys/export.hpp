#pragma once

/// Marks what users of the library may link to; everything else in it is hidden.
#if defined(__GNUC__)
#define RL4SYS_API __attribute__((visibility("default")))
#else
#define RL4SYS_API
#endif
