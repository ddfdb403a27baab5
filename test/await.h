// Waiting for other threads and processes. Only ctest's time-out bounds a wait, so a slow machine
// fails no test.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <thread>

namespace baton {

// Polls until `condition()` is true. Prints `what` at growing intervals, beginning after about one
// second.
template <typename Condition>
void Await(std::string_view what, Condition condition) {
  for (uint64_t polls = 1; !condition(); ++polls) {
    if (polls >= 512 && std::has_single_bit(polls)) std::cerr << "waiting for " << what << std::endl;
    // The sleep frees the processor for the awaited thread.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace baton
