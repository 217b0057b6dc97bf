// Precompiled by every test that sees no MLIR (cmake/NesoRules.cmake). Source files still include what they use.
#pragma once
#include "std_pch.h"

#include <gtest/gtest.h>
