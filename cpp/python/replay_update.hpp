#pragma once

#include <nanobind/nanobind.h>

void registerReplayUpdate(nanobind::module_& module);
