// UCX's own messages as lines of Baton's log.
#pragma once

namespace baton {

// While an object of this class exists, UCX's messages are lines of Baton's log, of the same level.
// Without it, UCX writes them to the standard output. If UCX_LOG_FILE is set, UCX writes them to
// that file in any case. UCX_LOG_LEVEL bounds the messages that UCX makes. Thread-safe.
class UcxLog {
 public:
  UcxLog();
  // The last object restores UCX's output, because UCX may report after Baton's log is destroyed.
  ~UcxLog();
  UcxLog(const UcxLog&) = delete;
  UcxLog& operator=(const UcxLog&) = delete;
};

}  // namespace baton
