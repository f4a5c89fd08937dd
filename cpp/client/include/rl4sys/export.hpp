#pragma once

/// Exports a symbol from the shared library; all other symbols are hidden.
#if defined(__GNUC__)
#define RL4SYS_API __attribute__((visibility("default")))
#else
#define RL4SYS_API
#endif
