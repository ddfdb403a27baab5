#include "server/flags.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

class TempFile {
 public:
  explicit TempFile(const std::string& content) : path_(absl::StrCat("/tmp/baton_flags_test_", getpid(), ".toml")) {
    std::ofstream(path_) << content;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The options that a router's command line and file give; the error of the file, if any.
struct Parsed {
  RouterOptions options;
  absl::Status file;
};

Parsed Parse(std::vector<std::string> words, const std::string& toml) {
  const TempFile file(toml);
  Parsed parsed;
  CLI::App app;
  AddFlags(app, parsed.options);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  app.parse(words);
  parsed.file = ApplyConfigFile(app, file.path());
  return parsed;
}

TEST_CASE("the file sets what the command line leaves out") {
  const Parsed parsed = Parse({"--listen", "127.0.0.1:1", "--model", "a,b"}, R"(
listen = "127.0.0.1:2"
model = ["c"]
prefill-workers = ["127.0.0.1:3", "127.0.0.1:4"]
max-requests = 17
grace = 2.5
check = true
)");
  INFO(Message(parsed.file));
  REQUIRE(parsed.file.ok());
  CHECK(parsed.options.listen == "127.0.0.1:1");
  CHECK(parsed.options.models == std::vector<std::string>{"a", "b"});
  CHECK(parsed.options.prefill_workers == std::vector<std::string>{"127.0.0.1:3", "127.0.0.1:4"});
  CHECK(parsed.options.limits.live_requests == 17);
  CHECK(parsed.options.common.grace_seconds == 2.5);
  CHECK(parsed.options.common.check);
}

TEST_CASE("a mistake in the file is named with its line") {
  const auto error = [](const std::string& toml) {
    const Parsed parsed = Parse({}, toml);
    CHECK_FALSE(parsed.file.ok());
    const std::string message(Message(parsed.file));
    return message.substr(message.find(".toml:") + 6);
  };
  CHECK(error("\nlisten = \"127.0.0.1:1\"\nlissten = 1\n") == "3: unknown option 'lissten'");
  CHECK(error("config = \"x\"") == "1: unknown option 'config'");
  CHECK(error("[router]\nlisten = \"x\"") == "1: unknown option 'router'");
  CHECK(error("listen = { a = 1 }") == "1: listen: expected a string, number, boolean or an array of them");
  CHECK(error("\n\nmax-requests = -1").starts_with("3: --max-requests"));
  CHECK(error("max-requests = \"many\"").starts_with("1: "));
  CHECK(error("listen = \"nowhere\"").find("expected host:port") != std::string::npos);
  CHECK(error("\nlisten = ").starts_with("2: "));
}

TEST_CASE("a file that is not there is an error") {
  CLI::App app;
  CHECK(absl::IsNotFound(ApplyConfigFile(app, "/nonexistent/baton.toml")));
}

TEST_CASE("addresses need a host and a port") {
  const std::string bad = GENERATE("", "localhost", ":1", "a:", "a:b", "a:70000", "a:-1");
  CLI::App app;
  RouterOptions options;
  AddFlags(app, options);
  CHECK_THROWS_AS(app.parse(std::vector<std::string>{bad, "--listen"}), CLI::Error);
}

TEST_CASE("required options and addresses that are named twice are told") {
  RouterOptions options;
  CHECK(Message(Validate(options)).starts_with("model: "));
  options.models = {"m"};
  options.prefill_workers = {"a:1"};
  CHECK(Message(Validate(options)).starts_with("decode-workers: "));
  options.decode_workers = {"a:1"};
  CHECK(Message(Validate(options)) == "workers: 'a:1' is named twice");
  options.decode_workers = {"a:2"};
  CHECK(Validate(options).ok());
}

TEST_CASE("more KV than memory, or next to none, is refused with both numbers") {
  WorkerOptions options;
  options.kv_memory_mb = 1;
  CHECK(Message(KvBlocks(options, 1 << 20).status()).find("hold 1 blocks") != std::string::npos);
  options.kv_blocks = int64_t{1} << 31;
  CHECK(Message(KvBlocks(options, 1 << 20).status()).find("do not fit") != std::string::npos);
  options.kv_blocks = 0;
  options.kv_memory_mb = 64;
  CHECK(KvBlocks(options, 1 << 20).value() == 64);
}

TEST_CASE("a worker on all interfaces must say how it is reached") {
  WorkerOptions options;
  CHECK(AdvertisedAddress(options, "127.0.0.1:7").value() == "127.0.0.1:7");
  CHECK(absl::IsInvalidArgument(AdvertisedAddress(options, "0.0.0.0:7").status()));
  options.advertise = "worker-0.workers:7";
  CHECK(AdvertisedAddress(options, "0.0.0.0:7").value() == "worker-0.workers:7");
}

}  // namespace
}  // namespace baton
