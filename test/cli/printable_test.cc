#include "cli/printable.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("Printable replaces terminal commands and changes of direction by ?") {
  CHECK(Printable("worker-0:7101, caf\u00e9, \u65e5\u672c, \U0001F600") ==
        "worker-0:7101, caf\u00e9, \u65e5\u672c, \U0001F600");
  CHECK(Printable("\x1b[2J\a\x7f") == "?[2J??");
  CHECK(Printable("\u009b2J") == "?2J");            // CSI as one character
  CHECK(Printable("\u202egnp.exe") == "?gnp.exe");  // the following text runs from right to left
}

TEST_CASE("Printable replaces invalid UTF-8 by ?") {
  CHECK(Printable("\x9b\x31J") == "?1J");  // CSI as one byte
  CHECK(Printable("a\x80\x80z") == "a??z");
  CHECK(Printable("\xc2\x9b\x80") == "??");
  CHECK(Printable("\xc0\xaf") == "??");
  CHECK(Printable("\xe2\x82") == "?");
  CHECK(Printable("\xff") == "?");
}

}  // namespace
}  // namespace baton
