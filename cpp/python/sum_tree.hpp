#pragma once

#include <nanobind/nanobind.h>

/// Adds the class SumTree to the module.
void registerSumTree(nanobind::module_& module);
