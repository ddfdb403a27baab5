#include "node/flags.h"

#include <sys/resource.h>

#include <iostream>
#include <sstream>

#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "child_process.h"
#include "temp_dir.h"

namespace baton {
namespace {

// The options from a router's command line and file, and the file's status.
struct Parsed {
  RouterOptions options;
  absl::Status file;
};

Parsed Parse(std::vector<std::string> words, const std::string& toml) {
  const TempDir directory;
  directory.Write("baton.toml", toml);
  Parsed parsed;
  CLI::App app;
  AddFlags(app, parsed.options);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  app.parse(words);
  parsed.file = ApplyConfigFile(app, directory / "baton.toml");
  return parsed;
}

TEST_CASE("ApplyConfigFile sets the options that the command line leaves out") {
  const Parsed parsed = Parse({"--listen", "127.0.0.1:1", "--model", "a,b"}, R"(
listen = "127.0.0.1:2"
model = ["c"]
prefill-workers = ["127.0.0.1:3", "127.0.0.1:4"]
max-requests = 17
schedule = "sjf"
grace = 2.5
check = true
)");
  INFO(Message(parsed.file));
  REQUIRE(parsed.file.ok());
  CHECK(parsed.options.listen == "127.0.0.1:1");
  CHECK(parsed.options.models == std::vector<std::string>{"a", "b"});
  CHECK(parsed.options.prefill_workers == std::vector<std::string>{"127.0.0.1:3", "127.0.0.1:4"});
  CHECK(parsed.options.limits.live_requests == 17);
  CHECK(parsed.options.schedule == Schedule::kShortestFirst);
  CHECK(parsed.options.common.grace_seconds == 2.5);
  CHECK(parsed.options.common.check);
}

TEST_CASE("Flags of the HTTP port repeat, and refuse values that cannot match") {
  const Parsed parsed = Parse({"--allow-origin", "https://a.example", "--allow-origin", "null"},
                              "host-name = [\"router.example\", \"router\"]\n");
  CHECK(parsed.file.ok());
  CHECK(parsed.options.allow_origins == std::vector<std::string>{"https://a.example", "null"});
  CHECK(parsed.options.host_names == std::vector<std::string>{"router.example", "router"});
  CHECK_THROWS_AS(Parse({"--allow-origin", "https://a.example/"}, ""), CLI::Error);
  CHECK_THROWS_AS(Parse({"--host-name", "router.example:8000"}, ""), CLI::Error);
  CHECK_FALSE(Parse({}, "allow-origin = \"a.example\"\n").file.ok());
}

TEST_CASE("A removed option is accepted with a warning in flags and file") {
  std::ostringstream warnings;
  std::streambuf* const before = std::cerr.rdbuf(warnings.rdbuf());
  const Parsed flag = Parse({"--routing", "random"}, "");
  const Parsed key = Parse({}, "routing = \"least-loaded\"\n");
  std::cerr.rdbuf(before);
  CHECK(flag.file.ok());
  CHECK(key.file.ok());
  const std::string warning = "warning: --routing is ignored, and 0.2.0 will refuse it: ";
  const size_t first = warnings.str().find(warning);
  REQUIRE(first != std::string::npos);
  CHECK(warnings.str().find(warning, first + 1) != std::string::npos);
  CLI::App app;
  RouterOptions options;
  AddFlags(app, options);
  CHECK(app.help().find("--routing") == std::string::npos);
}

TEST_CASE("A removed option takes one word and not the model behind it") {
  CLI::App app;
  ServeOptions options;
  AddServeFlags(app, options);
  std::ostringstream warnings;
  std::streambuf* const before = std::cerr.rdbuf(warnings.rdbuf());
  // CLI11 takes the words from the back.
  app.parse(std::vector<std::string>{"models/m", "pinned", "--routing"});
  std::cerr.rdbuf(before);
  CHECK(options.worker.model == "models/m");
  CHECK(warnings.str().find("--routing is ignored") != std::string::npos);
}

TEST_CASE("Option --http serves HTTP on loopback, on an address or not at all") {
  CHECK(Parse({}, "").options.http == "127.0.0.1:8000");
  CHECK(Parse({"--http", "0.0.0.0:80"}, "").options.http == "0.0.0.0:80");
  CHECK(Parse({}, "http = \"off\"").options.http == "off");
  CHECK_FALSE(Parse({}, "http = \"everywhere\"").file.ok());
}

TEST_CASE("Option --default-max-tokens is 0 by default and not negative") {
  CHECK(Parse({}, "").options.default_max_tokens == 0);
  CHECK(Parse({"--default-max-tokens", "100"}, "").options.default_max_tokens == 100);
  CHECK(Parse({}, "default-max-tokens = 7").options.default_max_tokens == 7);
  CHECK_FALSE(Parse({}, "default-max-tokens = -1").file.ok());
}

TEST_CASE("Option --verify-kv is an option of decode workers only") {
  WorkerOptions decode, prefill;
  CLI::App decode_app, prefill_app;
  AddDecodeFlags(decode_app, decode);
  AddPrefillFlags(prefill_app, prefill);
  CHECK_FALSE(decode.verify_kv);
  decode_app.parse(std::vector<std::string>{"--verify-kv"});
  CHECK(decode.verify_kv);
  CHECK(prefill_app.get_option_no_throw("--verify-kv") == nullptr);
}

TEST_CASE("Option --guard-kv is an option of both kinds of worker") {
  for (const auto add : {&AddDecodeFlags, &AddPrefillFlags}) {
    WorkerOptions options;
    CLI::App app;
    add(app, options);
    CHECK_FALSE(options.guard_kv);
    app.parse(std::vector<std::string>{"--guard-kv"});
    CHECK(options.guard_kv);
  }
}

TEST_CASE("The waits of a router are options in seconds") {
  const RouterLimits limits = Parse({"--worker-wait", "1.5", "--capacity-wait", "2.5", "--room-wait", "3.5",
                                     "--pin-wait", "4.5", "--silence", "5.5", "--longest-silence", "6.5"},
                                    "")
                                  .options.limits;
  CHECK(limits.worker_wait == absl::Seconds(1.5));
  CHECK(limits.capacity_wait == absl::Seconds(2.5));
  CHECK(limits.room_wait == absl::Seconds(3.5));
  CHECK(limits.placement.pin_wait == absl::Seconds(4.5));
  CHECK(limits.watch.silence == absl::Seconds(5.5));
  CHECK(limits.watch.longest_silence == absl::Seconds(6.5));
}

TEST_CASE("Option --announced-retry takes seconds") {
  CHECK(Parse({"--announced-retry", "2.5"}, "").options.agents.wait_retry == absl::Seconds(2.5));
  CHECK(Parse({}, "").options.agents.wait_retry == absl::Seconds(10));
}

TEST_CASE("Option --value-time takes seconds") {
  CHECK(Parse({"--value-time", "2.5"}, "").options.values.time == absl::Seconds(2.5));
  CHECK(Parse({}, "").options.values.time == absl::Minutes(10));
}

TEST_CASE("Option --peer-silence takes seconds and is an option of prefill workers only") {
  WorkerOptions decode, prefill;
  CLI::App decode_app, prefill_app;
  AddDecodeFlags(decode_app, decode);
  AddPrefillFlags(prefill_app, prefill);
  CHECK(prefill.peer_silence == absl::Seconds(2));
  prefill_app.parse(std::vector<std::string>{"0.5", "--peer-silence"});
  CHECK(prefill.peer_silence == absl::Milliseconds(500));
  // The deadline of a message is 5 s.
  CHECK_THROWS_AS(prefill_app.parse(std::vector<std::string>{"6", "--peer-silence"}), CLI::ValidationError);
  CHECK(decode_app.get_option_no_throw("--peer-silence") == nullptr);
}

TEST_CASE("ApplyConfigFile names a mistake with its line") {
  const auto error = [](const std::string& toml) {
    const Parsed parsed = Parse({}, toml);
    CHECK_FALSE(parsed.file.ok());
    const std::string message(Message(parsed.file));
    return message.substr(message.find(".toml:") + 6);
  };
  CHECK(error("\nlisten = \"127.0.0.1:1\"\nlissten = 1\n") == "3: unknown option 'lissten' (--help lists the names)");
  CHECK(error("config = \"x\"").starts_with("1: unknown option 'config'"));
  CHECK(error("[router]\nlisten = \"x\"").starts_with("1: unknown option 'router'"));
  CHECK(error("listen = { a = 1 }") == "1: listen: expected a string, number, boolean or an array of them");
  CHECK(error("\n\nmax-requests = -1").starts_with("3: --max-requests"));
  CHECK(error("max-requests = \"many\"").starts_with("1: "));
  CHECK(error("listen = \"nowhere\"").find("expected HOST:PORT with a port from 0 to 65535") != std::string::npos);
  CHECK(error("schedule = \"lifo\"").starts_with("1: --schedule"));
  CHECK(error("max-sessions = \"0x10\"").starts_with("1: --max-sessions: expected 1 to 1048576, auto or off"));
  CHECK(error("\nlisten = ").starts_with("2: "));
}

TEST_CASE("ApplyConfigFile warns of a value whose type is not the option's") {
  const auto warning = [](const std::string& toml) {
    std::ostringstream warnings;
    std::streambuf* const before = std::cerr.rdbuf(warnings.rdbuf());
    const Parsed parsed = Parse({}, toml);
    std::cerr.rdbuf(before);
    INFO(toml << Message(parsed.file));
    CHECK(parsed.file.ok());
    const std::string text = warnings.str();
    return text.empty() ? text : text.substr(text.find(".toml:") + 6);
  };
  CHECK(warning("\nmax-requests = \"17\"") ==
        "2: max-requests: expected an integer, got the text \"17\". 0.2.0 will refuse it\n");
  CHECK(warning("open = \"yes\"").starts_with("1: open: expected true or false, got the text \"yes\""));
  CHECK(warning("open = 1").starts_with("1: open: expected true or false, got 1"));
  CHECK(warning("shadow-prefill = \"true\"").starts_with("1: shadow-prefill: expected true or false"));
  CHECK(warning("grace = \"2.5\"").starts_with("1: grace: expected a number, got the text \"2.5\""));
  CHECK(warning("max-requests = 17\nopen = true\nshadow-prefill = false\ngrace = 2\ndns-seconds = 2.5\n"
                "max-sessions = 4\nlisten = \"a:1\"\nmodel = [\"a\", \"b\"]")
            .empty());
}

TEST_CASE("ApplyConfigFile returns an error when the file is absent") {
  CLI::App app;
  CHECK(absl::IsNotFound(ApplyConfigFile(app, "/nonexistent/baton.toml")));
}

TEST_CASE("Option --listen requires a host and a port") {
  const std::string bad = GENERATE("", "localhost", ":1", "a:", "a:b", "a:70000", "a:-1");
  CLI::App app;
  RouterOptions options;
  AddFlags(app, options);
  CHECK_THROWS_AS(app.parse(std::vector<std::string>{bad, "--listen"}), CLI::Error);
}

TEST_CASE("Option --register requires a prefix of etcd") {
  const auto parse = [](const std::string& name) {
    CLI::App app;
    WorkerOptions options;
    AddDecodeFlags(app, options);
    app.parse(std::vector<std::string>{"a:1,b:2", "--etcd", name, "--register"});
    return options;
  };
  CHECK(parse("etcd:/decode").register_under == "etcd:/decode");
  CHECK(parse("etcd:/decode").common.etcd.servers == std::vector<std::string>{"a:1", "b:2"});
  for (const char* bad : {"/decode", "srv:decode", "etcd:", "a:1"}) CHECK_THROWS_AS(parse(bad), CLI::Error);
}

TEST_CASE("Validate names missing options and duplicate addresses") {
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

TEST_CASE("Validate refuses two models with one name") {
  RouterOptions options;
  options.prefill_workers = {"a:1"};
  options.decode_workers = {"a:2"};
  options.models = {"old/llama", "new/llama/"};
  CHECK(Message(Validate(options)) ==
        "model: 'old/llama' and 'new/llama/' would both be served as 'llama': rename one directory");
}

TEST_CASE("Flags that are lists leave the argument that follows their value") {
  for (const char* flag : {"--served-model-name", "--model-alias", "--allow-origin", "--host-name"}) {
    INFO(flag);
    const std::string value = std::string(flag) == "--allow-origin" ? "null" : "a";
    CHECK_THROWS_AS(Parse({flag, value, "MODEL"}, ""), CLI::ExtrasError);
  }
}

TEST_CASE("Validate refuses names of models that collide") {
  RouterOptions options = Parse({"--served-model-name", "a=fast,b=best", "--model-alias", "gpt-*=fast,o1=b"},
                                "model = [\"m/a\", \"m/b\"]\n")
                              .options;
  options.prefill_workers = {"a:1"};
  options.decode_workers = {"a:2"};
  CHECK(Validate(options).ok());
  CHECK(ReadModelNames(options)->FindPattern("gpt-4") != nullptr);
  options.aliases.emplace_back("fast=b");
  CHECK(Message(Validate(options)) == "model-alias: 'fast' cannot name 'b', because it names 'a'");
}

TEST_CASE("CoresWithin rounds a control group's CPU quota up") {
  CHECK(CoresWithin("200000 100000", 8) == 2);
  CHECK(CoresWithin("150000 100000", 8) == 2);
  CHECK(CoresWithin("10000 100000", 8) == 1);
  CHECK(CoresWithin("900000 100000", 8) == 8);
  for (const char* none : {"max 100000", "", "200000", "-1 100000", "100000 0", "nonsense"}) {
    CHECK(CoresWithin(none, 8) == 8);
  }
}

TEST_CASE("SharedMemoryShortage names both sizes and a remedy") {
  CHECK(SharedMemoryShortage("/dev/shm", 1).empty());
  CHECK(SharedMemoryShortage("/nonexistent", 1).starts_with("/nonexistent cannot be written (No such file"));
  const std::string shortage = SharedMemoryShortage("/dev/shm", int64_t{1} << 50);
  INFO(shortage);
  CHECK(shortage.find("the KV blocks need 1073741825 MiB: enlarge it") != std::string::npos);
}

TEST_CASE("SharedMemoryShortage names ulimit -f when the limit on file size is too low") {
  const ChildEnd end = RunInChild([] {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::cerr << SharedMemoryShortage("/dev/shm", 2 << 20);
  });
  CHECK(end.stderr_text.starts_with("/dev/shm holds files of at most 1024 KiB"));
  CHECK(end.stderr_text.find("raise the limit (ulimit -f) or lower --kv-memory-mb") != std::string::npos);
}

TEST_CASE("KvBlocks refuses more KV than memory or almost none, with both numbers") {
  WorkerOptions options;
  options.kv_memory_mb = 1;
  CHECK(Message(KvBlocks(options, 1 << 20).status()).find("hold 1 blocks") != std::string::npos);
  options.kv_blocks = int64_t{1} << 31;
  CHECK(Message(KvBlocks(options, 1 << 20).status()).find("do not fit") != std::string::npos);
  options.kv_blocks = 1;
  CHECK(Message(KvBlocks(options, 1 << 20).status()) == "kv-blocks: expected at least 2, got 1");
  options.kv_blocks = 0;
  options.kv_memory_mb = 64;
  CHECK(KvBlocks(options, 1 << 20).value() == 64);
}

TEST_CASE("KvBlocksOnDevice takes nine tenths of the remaining memory or --kv-memory-mb") {
  constexpr int64_t kMb = 1 << 20;
  WorkerOptions options;
  CHECK(KvBlocksOnDevice(options, kMb, 500 * kMb).value() == 450);
  options.kv_memory_mb = 64;
  CHECK(KvBlocksOnDevice(options, kMb, 500 * kMb).value() == 64);
  options.kv_blocks = 7;
  CHECK(KvBlocksOnDevice(options, kMb, 500 * kMb).value() == 7);
  options.kv_blocks = 501;
  CHECK(Message(KvBlocksOnDevice(options, kMb, 500 * kMb).status())
            .find("do not fit into the device's free memory without weights and the largest step, 500 MiB") !=
        std::string::npos);
  for (const int64_t left : {int64_t{0}, -700 * kMb}) {
    CHECK(Message(KvBlocksOnDevice({}, kMb, left).status())
              .starts_with(
                  StrCat("device: weights and the largest step leave ", left >> 20, " MiB of free memory for KV")));
  }
}

TEST_CASE("Option --device accepts the CPU, a GPU's number or auto") {
  for (const char* good : {"auto", "cpu", "cuda", "cuda:0", "cuda:7", "cuda:1,0,0"}) {
    CLI::App app;
    WorkerOptions options;
    AddPrefillFlags(app, options);
    app.parse(std::vector<std::string>{good, "--device"});
    CHECK(options.device == good);
  }
  for (const char* bad : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "cuda:0,", "cuda:0,x"}) {
    CLI::App app;
    WorkerOptions options;
    AddPrefillFlags(app, options);
    CHECK_THROWS_AS(app.parse(std::vector<std::string>{bad, "--device"}), CLI::Error);
  }
}

TEST_CASE("SetStepDefaults chooses steps for the device unless options set them") {
  WorkerOptions options;
  SetStepDefaults(options, /*on_gpu=*/false);
  CHECK((options.step_tokens == 512 && options.max_batch == 64));
  SetStepDefaults(options, /*on_gpu=*/true);
  CHECK((options.step_tokens == 512 && options.max_batch == 64));
  options = {};
  SetStepDefaults(options, /*on_gpu=*/true);
  CHECK((options.step_tokens == 2048 && options.max_batch == 256));
  for (const char* bad : {"-1", "1", "15", "1048577"}) {
    CLI::App app;
    AddPrefillFlags(app, options);
    CHECK_THROWS_AS(app.parse(std::vector<std::string>{bad, "--step-tokens"}), CLI::Error);
  }
}

TEST_CASE("Option --score-step-ms accepts 0 for no bound and refuses other values out of range") {
  const auto parse = [](const std::string& value) {
    CLI::App app;
    WorkerOptions options;
    AddDecodeFlags(app, options);
    app.parse(std::vector<std::string>{value, "--score-step-ms"});
    return options.score_step_ms;
  };
  CHECK(parse("0") == 0);
  CHECK(parse("60000") == 60'000);
  for (const char* bad : {"-1", "60001", "2.5", "nan", "", "25ms", "99999999999999999999"}) {
    CHECK_THROWS_AS(parse(bad), CLI::Error);
  }
}

TEST_CASE("Option --device names one GPU for each rank or leaves the choice to the worker") {
  WorkerOptions options;
  const auto devices = [&](const char* device, int ranks) {
    options.device = device;
    options.tensor_parallel = ranks;
    return CudaDevices(options);
  };
  CHECK(devices("cpu", 2).value().empty());
  CHECK(devices("auto", 1).value().empty());
  CHECK(devices("cuda", 3).value().empty());
  CHECK(devices("cuda:3,1", 2).value() == std::vector<int>{3, 1});
  for (const int ranks : {1, 3}) {
    CHECK(Message(devices("cuda:3,1", ranks).status()) ==
          StrCat("device: expected one GPU per rank of --tensor-parallel (", ranks, "), got cuda:3,1"));
  }
}

TEST_CASE("Validate requires --advertise when a worker listens on all interfaces") {
  WorkerOptions options;
  CHECK(AdvertisedAddress(options, "127.0.0.1:7").value() == "127.0.0.1:7");
  CHECK(absl::IsInvalidArgument(AdvertisedAddress(options, "0.0.0.0:7").status()));
  options.model = "m";
  options.common.open = true;
  options.listen = GENERATE("0.0.0.0:7", "[::]:7", ":::7");
  CHECK(Message(Validate(options)).starts_with("advertise: required with --listen " + options.listen));
  for (const char* nowhere : {"0.0.0.0:7", "worker-0:0"}) {
    options.advertise = nowhere;
    CHECK(Message(Validate(options)).find("cannot be dialed") != std::string::npos);
  }
  options.advertise = "worker-0.workers:7";
  CHECK(Validate(options).ok());
  CHECK(AdvertisedAddress(options, "0.0.0.0:7").value() == "worker-0.workers:7");
}

TEST_CASE("Validate refuses public addresses without keys, certificates or --open") {
  for (const char* listen : {"0.0.0.0:7", "[::]:7", "10.0.0.1:7", "host:7", "127.host:7"}) {
    INFO(listen);
    WorkerOptions worker;
    worker.model = "m";
    worker.listen = listen;
    worker.advertise = "worker:7";
    CHECK(Message(Validate(worker)) ==
          StrCat("listen: ", listen, " may be reached from other machines, and any client there may call. Give ",
                 "--peer-cert, --peer-key and --peer-ca, or --open to allow this"));
    worker.common.open = true;
    CHECK(Validate(worker).ok());

    RouterOptions router;
    router.listen = listen;
    CHECK(absl::IsInvalidArgument(ValidateAccess(router)));
    router.listen = "localhost:7";
    CHECK(ValidateAccess(router).ok());
    router.http = listen;
    CHECK(Message(ValidateAccess(router)).starts_with(StrCat("http: ", listen)));
    router.keys = "keys.toml";
    CHECK(ValidateAccess(router).ok());
    CHECK(UnencryptedKeysWarning(router) != "");
    router.tls = {.certificate = "c", .key = "k"};
    CHECK(UnencryptedKeysWarning(router) == "");
    router.tls = {};
    router.http = "off";
    CHECK(UnencryptedKeysWarning(router) == "");
    router.listen = listen;
    CHECK(UnencryptedKeysWarning(router) != "");
  }
  WorkerOptions quiet;
  quiet.model = "m";
  for (const char* metrics : {"off", "0", "", "127.0.0.1:9"}) {
    quiet.common.metrics = metrics;
    CHECK(Validate(quiet).ok());
  }
  quiet.common.metrics = "0.0.0.0:9";
  const std::string no_key = "metrics: 0.0.0.0:9 may be reached from other machines, and /metrics asks for no key. ";
  CHECK(Message(Validate(quiet)) == no_key + "Give --peer-cert, --peer-key and --peer-ca, or --open, to allow this");
  quiet.common.metrics = "off";
  for (const char* devices : {"eth0", "", "all"}) {
    quiet.kv_devices = devices;
    CHECK(Message(Validate(quiet)).starts_with(StrCat("kv-devices: '", devices, "' may be reached")));
  }
  quiet.kv_devices = "eth0";
  quiet.guard_kv = true;
  CHECK(Validate(quiet).ok());
  quiet.guard_kv = false;
  quiet.common.open = true;
  CHECK(Validate(quiet).ok());
  quiet.common.open = false;
  Authority ours("ours");
  quiet.common.metrics = "0.0.0.0:9";
  quiet.common.peer = ours.Issue("worker");
  // UCX requires neither keys nor certificates.
  CHECK(Message(Validate(quiet)).starts_with("kv-devices: 'eth0' may be reached"));
  quiet.kv_devices = "lo";
  CHECK(Validate(quiet).ok());
  RouterOptions here;
  here.common.metrics = "0.0.0.0:9";
  CHECK(Message(ValidateAccess(here)) == no_key + "Give --keys or --open to allow this");
  here.keys = "keys.toml";
  CHECK(ValidateAccess(here).ok());
  here.keys = "";
  here.common.metrics = "off";
  for (const char* listen : {"127.0.0.1:0", "127.1.2.3:7", "[::1]:7", "localhost:7"}) {
    here.listen = listen;
    CHECK(ValidateAccess(here).ok());
  }
}

}  // namespace
}  // namespace baton
