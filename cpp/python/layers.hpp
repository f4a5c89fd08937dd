#pragma once

#include <nanobind/nanobind.h>

/// Add the classes Layers, Tape and AdamGroup to the module.
void registerLayers(nanobind::module_& module);
