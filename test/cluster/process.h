// A program that a test starts and may kill.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "temp_dir.h"

namespace baton {

class Process {
 public:
  // Starts BATON_BIN_DIR/program, or the program of an absolute path. It reads `input`, and its
  // output goes to a file of its own.
  Process(const std::string& program, const std::vector<std::string>& arguments, const std::string& input = "");
  // Kills the process if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits for the first line of the output with `marker`, and returns the rest of that line. Fails
  // the test if the process ends before.
  std::string Await(const std::string& marker);
  // Sends a signal. Waits until the process has stopped if the signal is SIGSTOP.
  void Signal(int signal);
  // Waits for the end. Returns the exit code, or the negative number of the signal that ended the
  // process.
  int Wait();
  // Does not wait.
  bool HasEnded();
  std::string Output() const;
  pid_t pid() const { return pid_; }

 private:
  TempDir directory_;  // has input and output
  pid_t pid_ = -1;     // -1 after the process was waited for
  int exit_ = 0;
};

}  // namespace baton
