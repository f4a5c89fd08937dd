#pragma once

#include <nanobind/nanobind.h>

/// Add the class SumTree to the module.
void registerSumTree(nanobind::module_& module);
