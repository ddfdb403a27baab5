// A program that a test starts and may kill.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "temp_dir.h"

namespace baton {

class Process {
 public:
  // Starts BATON_BIN_DIR/program, or that of an absolute path, which reads `input`; its output goes to a file of its
  // own.
  Process(const std::string& program, const std::vector<std::string>& arguments, const std::string& input = "");
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The rest of the first line of its output that has `marker`, once there is one; fails the test if it ends before.
  std::string Await(const std::string& marker);
  void Signal(int signal);  // SIGSTOP: and it has stopped
  int Wait();               // for its end: the exit code, or minus the signal that ended it
  bool HasEnded();          // does not wait
  std::string Output() const;
  pid_t pid() const { return pid_; }

 private:
  TempDir directory_;  // of input and output
  pid_t pid_ = -1;     // -1: it was waited for
  int exit_ = 0;
};

}  // namespace baton
