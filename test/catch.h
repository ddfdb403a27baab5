// The one header of Catch2, for both major versions. Debian 12 has 2.13, and Debian 13 has
// 3.
#pragma once

#ifdef BATON_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;  // version 2 has it in the global namespace
#endif
