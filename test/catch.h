// Catch2's one header, for either major version: Debian 12 has 2.13, Debian 13 has 3.
#pragma once

#ifdef BATON_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;  // version 2 has it in the global namespace
#endif
