"""Does tools/tidy_clocks.py find reads of the wall clock and waits by it, and no others?"""

import unittest

import tidy_clocks

WALL = [
    "absl::Now()", "absl::GetCurrentTimeNanos()", "std::chrono::system_clock::now()",
    "std::chrono::high_resolution_clock::now()", "std::chrono::utc_clock::now()", "file_clock::now()",
    "time(nullptr)", "std::time(0)", "::time(&now)", "gettimeofday(&now, nullptr)", "timespec_get(&now, TIME_UTC)",
    "clock_gettime(CLOCK_REALTIME, &now)", "clock_gettime(0, &now)", "clock_nanosleep(0, 0, &until, nullptr)",
    "gpr_now(GPR_CLOCK_REALTIME)", "context.deadline()", "context->deadline()", "absl::ToChronoTime(until)",
    "pthread_cond_timedwait(&changed, &mutex, &until)", "pthread_mutex_timedlock(&mutex, &until)",
    "pthread_rwlock_timedrdlock(&lock, &until)", "pthread_rwlock_timedwrlock(&lock, &until)",
    "sem_timedwait(&semaphore, &until)", "changed.WaitWithTimeout(&mutex, absl::Seconds(1))",
    "changed.WaitWithDeadline(&mutex, until)", "mutex.AwaitWithTimeout(ready, absl::Seconds(1))",
    "mutex.ReaderLockWhenWithDeadline(ready, until)", "done.WaitForNotificationWithTimeout(absl::Seconds(1))",
]
STEADY = [
    "SteadyClock().Now()", "std::chrono::steady_clock::now()", "clock_gettime(CLOCK_MONOTONIC, &now)",
    "pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &until)", "context.raw_deadline()",
    "changed.wait_for(lock, period)", "Timeout()", "DeadlineAfter(timeout)", "downtime(0)",
]


class TidyClocksTest(unittest.TestCase):
    def problems(self, sources):
        return list(tidy_clocks.problems(sources))

    def test_a_use_of_the_wall_clock_is_refused(self):
        for code in WALL:
            with self.subTest(code):
                found = self.problems({"src/kv/a.cc": f"x = {code};"})
                self.assertEqual(len(found), 1, found)
                self.assertIn("src/kv/a.cc: expected 0 uses of the wall clock, got ['", found[0])

    def test_the_monotonic_clock_is_fine(self):
        for code in STEADY:
            with self.subTest(code):
                self.assertEqual(self.problems({"src/kv/a.cc": f"x = {code};"}), [])

    def test_a_file_for_dates_has_exactly_the_listed_number(self):
        path = "src/frontend/admission.cc"
        for count in range(4):
            with self.subTest(count):
                self.assertEqual(len(self.problems({path: "absl::Now();" * count})), 0 if count == 2 else 1)


if __name__ == "__main__":
    unittest.main()
