#pragma once

#include <nanobind/nanobind.h>

/// Adds the classes Layers and Tape, and the step of Adam, to the module.
void registerLayers(nanobind::module_& module);
