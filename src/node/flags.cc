#include "node/flags.h"

#include <iostream>
#include <sstream>

#include "base/status.h"
#include "base/strings.h"
#include "base/toml_file.h"
#include "base/version.h"
#include "membership/worker_names.h"
#include "node/http_flags.h"

namespace baton {
namespace {

const CLI::Validator kMetricsAddress(
    [](std::string& text) -> std::string {
      return text.empty() || text == "off" || text == "0" ? "" : HostPort()(text);
    },
    "HOST:PORT|off");

const CLI::Validator kWorkerName(
    [](const std::string& text) -> std::string {
      const auto name = ParseWorkerName(text);
      return name.ok() ? "" : std::string(Message(name.status()));
    },
    "HOST:PORT|dns:HOST:PORT|srv:NAME|etcd:PREFIX");

const CLI::Validator kEtcdName(
    [](const std::string& text) -> std::string {
      const auto name = ParseWorkerName(text);
      const bool good = name.ok() && name->kind == WorkerName::Kind::kEtcd;
      return good ? "" : StrCat("expected etcd:PREFIX, a prefix such as /baton/decode, got ", text);
    },
    "etcd:PREFIX");

const CLI::Validator kMaxSessions(
    [](const std::string& text) -> std::string {
      int32_t number = 0;
      if (text == "auto" || text == "off") return "";
      if (absl::SimpleAtoi(text, &number) && number >= 1 && number <= 1 << 20) return "";
      return StrCat("expected 1 to ", 1 << 20, ", auto or off, got ", text);
    },
    "NUMBER|auto|off");

const CLI::Validator kDevice(
    [](const std::string& text) -> std::string {
      if (text == "auto" || text == "cpu" || text == "cuda" || !CudaDevicesIn(text).empty()) return "";
      return StrCat("expected auto, cpu, cuda or cuda:N[,N...], got ", text);
    },
    "auto|cpu|cuda|cuda:N[,N...]");

void AddSeconds(CLI::App& app, const std::string& name, absl::Duration& value, double most, const std::string& help) {
  app.add_option_function<double>(
         name, [&value](double seconds) { value = absl::Seconds(seconds); }, help)
      ->check(CLI::Range(0.0, most))
      ->default_str(absl::StrCat(absl::ToInt64Seconds(value)));
}

void AddWorkerFlags(CLI::App& app, WorkerOptions& o, const std::string& model_name = "--model") {
  app.add_option(model_name, o.model, "Hugging Face directory of the model (required)");
  app.add_option("--threads", o.threads, "number of compute threads; 0 for one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--device", o.device,
                 "device that computes: cpu, cuda (the GPUs with the most free memory, one per rank), cuda:N,..., or "
                 "auto (cuda if there are GPUs that can run the model)")
      ->check(kDevice)
      ->capture_default_str();
  app.add_option("--tensor-parallel", o.tensor_parallel,
                 "number of ranks that divide the model's heads; at most one per KV head. Each rank has its own KV "
                 "memory and its own GPU, ideally with peer access to the others. On the CPU the ranks divide the "
                 "threads, which gains nothing")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--same-bits", o.same_bits,
               "on a GPU: selects kernels whose results are bit-equal for any chunking and batch, as far as a test "
               "at the start can verify (docs/sizing.md). They are slower (bench/results/README.md). On the CPU "
               "results are always bit-equal");
  app.add_option("--kv-memory-mb", o.kv_memory_mb,
                 "MiB of memory for KV blocks per worker; 0 for 1024 on the CPU, and on a GPU for nine tenths of the "
                 "memory that the weights and the largest step leave")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--kv-blocks", o.kv_blocks, "number of KV blocks of 16 tokens, instead of --kv-memory-mb")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
}

void AddPeerCertificates(CLI::App& app, TlsFiles& files) {
  app.add_option(
      "--peer-cert", files.certificate,
      "PEM file: certificate of this process for routers and workers, valid for the host names or addresses "
      "under which they reach it. Encrypts all traffic among them, except KV blocks over UCX (see --guard-kv)");
  app.add_option("--peer-key", files.key, "PEM file: private key of --peer-cert");
  app.add_option("--peer-ca", files.authority,
                 "PEM file: authority that signed the certificates of routers and workers");
}

void AddEtcd(CLI::App& app, EtcdOptions& o) {
  app.add_option("--etcd", o.servers, "servers of the etcd (API v3) that lists the workers")
      ->delimiter(',')
      ->check(HostPort());
  app.add_option("--etcd-ca", o.tls.authority,
                 "PEM file: authority that signed the certificates of --etcd; default: no encryption");
  app.add_option("--etcd-cert", o.tls.certificate, "PEM file: client certificate, if etcd requires one");
  app.add_option("--etcd-key", o.tls.key, "PEM file: private key of --etcd-cert");
}

void AddPeerFlags(CLI::App& app, WorkerOptions& o) {
  AddPeerCertificates(app, o.common.peer);
  app.add_option("--listen", o.listen, "address to listen on; port 0 selects a free port")
      ->check(HostPort())
      ->capture_default_str();
  app.add_option("--advertise", o.advertise,
                 "address under which peers reach this worker; default: the --listen address")
      ->check(HostPort());
  auto* registers = app.add_option(
      "--register", o.register_under,
      "prefix under which the worker registers its address in etcd while it serves; routers use the same prefix");
  registers->check(kEtcdName);
  app.add_option("--lease-seconds", o.lease_seconds,
                 "seconds after which etcd removes a worker that stopped renewing its etcd lease")
      ->check(CLI::Range(int64_t{2}, int64_t{3600}))
      ->needs(registers)
      ->capture_default_str();
  AddEtcd(app, o.common.etcd);
  app.add_option("--kv-devices", o.kv_devices,
                 "network devices for KV blocks between hosts, as in UCX_NET_DEVICES: eth0, mlx5_0:1, all; lo for this "
                 "machine only, which uses shared memory")
      ->capture_default_str();
}

void AddStepTokens(CLI::App& app, WorkerOptions& o) {
  app.add_option("--step-tokens", o.step_tokens,
                 "upper bound on prompt tokens per step; 0 for 512 on the CPU, 2048 on a GPU")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 20) | CLI::IsMember({0}))
      ->capture_default_str();
  app.add_option("--increment", o.increment,
                 "minimum number of waiting tokens with which a streaming prompt (one that waits for another request's "
                 "output) joins a step with other requests; 0 selects the number for which the measured fixed cost is "
                 "a quarter of a step")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option(
         "--growing-step-ms", o.streaming_step_ms,
         "upper bound in milliseconds on the measured time of a step that computes only streaming prompts and "
         "low-priority jobs. From measured steps, the worker derives how many of their tokens fit in this time. "
         "Every step, also one with other prompts, computes at most that many of them. The number is at least 16, "
         "at least the tokens for which half of a step's time is its fixed cost, and at most --step-tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{60'000}))
      ->capture_default_str();
}

void AddStaging(CLI::App& app, WorkerOptions& o) {
  app.add_option("--kv-host-mb", o.kv_host_mb,
                 "MiB of host memory for KV blocks evicted from --kv-memory-mb; 0 for none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--kv-disk-dir", o.kv_disk_dir,
                 "directory on a local disk for KV blocks that exceed --kv-host-mb. The file there has no name and "
                 "disappears when the process ends");
  app.add_option("--kv-disk-mb", o.kv_disk_mb, "MiB of disk space in --kv-disk-dir, allocated at the start; 0 for none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
}

void AddMaxBatch(CLI::App& app, WorkerOptions& o) {
  app.add_option("--max-batch", o.max_batch,
                 "upper bound on requests per decode step; 0 for 64 on the CPU, 256 on a GPU")
      ->check(CLI::Range(0, 1 << 14))
      ->capture_default_str();
  app.add_option("--score-tokens", o.score_tokens,
                 "upper bound on prompt tokens per decode step that are computed for their log probabilities (echo "
                 "with logprobs, prompt_logprobs). Each has a row of logits in memory")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  app.add_option(
         "--score-step-ms", o.score_step_ms,
         "upper bound in milliseconds on the measured time of a decode step that computes prompt tokens for their log "
         "probabilities beside tokens of other requests. From measured steps, the worker derives how many fit in this "
         "time, at least one. If the other requests alone take more than four fifths of it, a step may take a quarter "
         "longer than they do. 0: no bound")
      ->check(CLI::Range(int64_t{0}, int64_t{60'000}))
      ->capture_default_str();
}

void AddThinking(CLI::App& app, const std::string& flag, int32_t& budget, const std::string& effort) {
  app.add_option(flag, budget,
                 "upper bound on the tokens of thinking in chats with reasoning_effort '" + effort + "'; 0: no bound")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
}

void AddClientFlags(CLI::App& app, RouterOptions& o) {
  app.add_option("--listen", o.listen, "address to listen on for clients' gRPC; port 0 selects a free port")
      ->check(HostPort())
      ->capture_default_str();
  AddHttpFlags(app, o);
  app.add_option("--default-max-tokens", o.default_max_tokens,
                 "max_tokens of requests that set none, or what the prompt leaves of the context length if that is "
                 "less; 0: what the prompt leaves. /v1/completions has 16, as in OpenAI's API")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  AddThinking(app, "--thinking-minimal", o.thinking.minimal, "minimal");
  AddThinking(app, "--thinking-low", o.thinking.low, "low");
  AddThinking(app, "--thinking-medium", o.thinking.medium, "medium");
  app.add_option("--keys", o.keys, "TOML file of API keys and quotas (docs/security.md); SIGHUP reloads it");
  app.add_option("--tls-cert", o.tls.certificate, "PEM file: certificate for clients; enables TLS for gRPC and HTTP");
  app.add_option("--tls-key", o.tls.key, "PEM file: private key of --tls-cert");
  app.add_option("--max-requests", o.limits.live_requests,
                 "upper bound on live requests with complete prompts; further requests fail with RESOURCE_EXHAUSTED")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-waiting", o.limits.waiting_prompts,
                 "upper bound on requests that wait for other requests' outputs or for --max-sessions, before they "
                 "count in --max-requests; 0: four times --max-requests")
      ->check(CLI::Range(0, 1 << 22))
      ->capture_default_str();
  AddSeconds(app, "--worker-wait", o.limits.worker_wait, 3600,
             "seconds for which a request waits if no worker that could serve it is attached");
  AddSeconds(app, "--capacity-wait", o.limits.capacity_wait, 3600,
             "seconds for which a request waits in all after workers refused it for lack of room");
  AddSeconds(app, "--room-wait", o.limits.room_wait, 3600,
             "seconds for which a request waits for KV memory of full decode workers before one of them keeps the "
             "memory that comes free for it; 0: at once");
  AddSeconds(app, "--announced-retry", o.agents.wait_retry, 3600,
             "seconds, beyond the retry delay of a refused or dead request, for which prompts that refer to it as an "
             "announced "
             "one wait for another submission");
  AddSeconds(app, "--value-time", o.values.time, 86400,
             "seconds within which an output that a client writes (PutOutput) must be complete");
  AddSeconds(app, "--silence", o.limits.watch.silence, 60,
             "seconds without a report after which a worker gets no new requests and its requests go on elsewhere; 0: "
             "no worker is avoided");
  AddSeconds(app, "--longest-silence", o.limits.watch.longest_silence, 60,
             "upper bound on these seconds for a worker whose reports come irregularly");
  AddSeconds(app, "--pin-wait", o.limits.placement.pin_wait, 3600,
             "seconds that the first request of a worker's queue may wait before requests pinned to the worker go "
             "elsewhere; 0: no bound");
  app.add_option("--served-model-name", o.served_names,
                 "names by which clients ask for a model, and which the router lists, instead of the directory's name: "
                 "[MODEL=]NAME. MODEL is the directory's name, which may be left out if there is one model. The "
                 "directory's name stays accepted")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("NAMES");
  app.add_option(
         "--model-alias", o.aliases,
         "further names of a model: PATTERN=MODEL. A '*' stands for any characters, as in claude-*=MODEL. Exact names "
         "are listed and come first, and then the narrowest pattern (docs/openai.md)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("ALIASES");
  AddRetired(app, "--routing",
             "the router always places a request by its session, or else by the prefix of its prompt");
  app.add_option(
         "--shadow-prefill", o.shadow_prefill,
         "prefill the output of a session's request while the output is generated, for the session's next turn: true, "
         "false")
      ->capture_default_str();
  app.add_option(
         "--max-sessions", o.max_sessions,
         "upper bound on active sessions; requests of other sessions wait, and tenants are admitted "
         "alternately. Values: a number; auto (no bound until prefill memory is short while prompts wait, then a "
         "bound that falls and rises with the load, docs/sizing.md); off")
      ->check(kMaxSessions)
      ->capture_default_str();
  std::string schedules;
  for (const ScheduleRow& row : kSchedules) {
    schedules = StrCat(schedules, schedules.empty() ? "" : "; ", row.name, ", ", row.help);
  }
  app.add_option_function<std::string>(
         "--schedule", [&o](const std::string& name) { o.schedule = ScheduleNamed(name).value(); },
         StrCat("among equal priorities: ", schedules))
      ->check(CLI::IsMember(NamesIn(kSchedules)))
      ->default_str(std::string(kSchedules[0].name));
}

// Returns the command-line words for a TOML value. Returns nullopt for tables and dates.
std::optional<std::vector<std::string>> CommandLineWords(const toml::node& node) {
  if (const toml::array* array = node.as_array()) {
    std::vector<std::string> words;
    for (const toml::node& element : *array) {
      const auto word = CommandLineWords(element);
      if (!word || word->size() != 1) return std::nullopt;
      words.push_back(word->front());
    }
    return words;
  }
  if (const auto* text = node.as_string()) return {{text->get()}};
  if (!node.is_integer() && !node.is_floating_point() && !node.is_boolean()) return std::nullopt;
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << std::boolalpha << value.get();
  });
  return {{out.str()}};
}

// Returns the words for the type of an option, or an empty text if the option accepts every type.
std::string_view ExpectedType(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_expected_max() == 0 || type.starts_with("BOOLEAN")) return "true or false";
  if (type.starts_with("INT") || type.starts_with("UINT")) return "an integer";
  return type.starts_with("FLOAT") ? "a number" : "";
}

// Warns about a value that is read as on the command line although its TOML type is another one.
void WarnOfType(const std::string& where, const std::string& key, const CLI::Option& option, const toml::node& node,
                const std::string& value) {
  const std::string_view expected = ExpectedType(option);
  if (expected.empty() || (expected == "true or false" && node.is_boolean()) ||
      (expected == "an integer" && node.is_integer()) || (expected == "a number" && node.is_number())) {
    return;
  }
  std::cerr << "warning: " << where << ": " << key << ": expected " << expected << ", got "
            << (node.is_string() ? StrCat("the text \"", value, "\"") : value) << ". 0.2.0 will refuse it\n";
}

absl::Status ApplyKey(CLI::App& app, const std::string& where, const std::string& key, const toml::node& node) {
  CLI::Option* option = app.get_option_no_throw("--" + key);
  if (option == nullptr || key == "config" || key == "help" || key == "version") {
    return absl::InvalidArgumentError(StrCat(where, ": unknown option '", key, "' (--help lists the names)"));
  }
  const auto words = CommandLineWords(node);
  if (!words) {
    return absl::InvalidArgumentError(
        StrCat(where, ": ", key, ": expected a string, number, boolean or an array of them"));
  }
  // The command line takes precedence.
  if (option->count() > 0) return absl::OkStatus();
  try {
    option->add_result(*words);
    option->run_callback();
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(StrCat(where, ": ", error.what()));
  }
  if (words->size() == 1) WarnOfType(where, key, *option, node, words->front());
  return absl::OkStatus();
}

// Describes an error of the command line for a user.
std::string Explain(const CLI::App& app, const CLI::Error& error, int argc, const char* const* argv) {
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  if (subcommands.empty() || !app.get_subcommands().empty()) return error.what();
  std::vector<std::string> names;
  for (const CLI::App* subcommand : subcommands) names.push_back(subcommand->get_name());
  return StrCat(argc > 1 ? StrCat("unknown command '", argv[1], "'") : std::string("no command"), ": expected ",
                CLI::detail::join(names, ", "));
}

}  // namespace

CLI::Validator HostPort() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const size_t colon = text.rfind(':');
        int port = -1;
        if (colon != std::string::npos && colon > 0 && text.find('/') == std::string::npos &&
            CLI::detail::lexical_cast(text.substr(colon + 1), port) && port >= 0 && port <= 65535) {
          return {};
        }
        return "expected HOST:PORT with a port from 0 to 65535, got '" + text + "'";
      },
      "HOST:PORT");
}

void AddRetired(CLI::App& app, const std::string& name, const std::string& instead) {
  const auto warn = [name, instead](const std::string&) {
    std::cerr << "warning: " << name << " is ignored, and 0.2.0 will refuse it: " << instead << "\n";
  };
  app.add_option_function<std::string>(name, warn)->group("");  // hidden from --help
}

void AddFlags(CLI::App& app, CommonOptions& o) {
  app.add_option("--config", "TOML file with the same option names; flags override it");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--log-format", o.log_format, "text, or json with one object per line (docs/observability.md)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--metrics", o.metrics, "address of /metrics for Prometheus, or off; port 0 selects a free port")
      ->check(kMetricsAddress)
      ->capture_default_str();
  app.add_flag(
      "--vllm-metrics", o.vllm_metrics,
      "also export metrics under vLLM's names (vllm:...), if their meanings are equal (docs/observability.md)");
  app.add_option("--grace", o.grace_seconds, "seconds that running requests have to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--open", o.open,
               "allow addresses that other machines can reach, even without keys or certificates: any client there may "
               "then call");
  app.add_flag("--check", o.check,
               "validate options and model, and in workers weights and memory, then exit with 0 or 1");
}

void AddFlags(CLI::App& app, RouterOptions& o) {
  AddFlags(app, o.common);
  AddPeerCertificates(app, o.common.peer);
  AddClientFlags(app, o);
  app.add_option("--model", o.models, "Hugging Face directories of the models to serve (required)")->delimiter(',');
  app.add_option("--prefill-workers", o.prefill_workers,
                 "addresses of prefill workers (required): HOST:PORT; dns:HOST:PORT, one worker per address of the "
                 "host; srv:NAME, one per SRV record; or etcd:PREFIX, one per key under the prefix. The router follows "
                 "changes in DNS and etcd")
      ->delimiter(',')
      ->check(kWorkerName);
  app.add_option("--decode-workers", o.decode_workers,
                 "addresses of decode workers (required), in the forms of --prefill-workers")
      ->delimiter(',')
      ->check(kWorkerName);
  app.add_option("--dns-server", o.dns_server, "IP:PORT of the DNS server for workers' names; default: the system's")
      ->check(HostPort());
  app.add_option("--dns-seconds", o.dns_seconds, "seconds between queries of a name in DNS")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  AddEtcd(app, o.common.etcd);
}

namespace {

void AddGuard(CLI::App& app, WorkerOptions& o, const std::string& what) {
  app.add_flag("--guard-kv", o.guard_kv,
               what +
                   " KV blocks then move over gRPC (encrypted if there are certificates) instead of UCX, which does "
                   "not authenticate writers. No KV memory is shared with other processes. Slower than shared memory, "
                   "RDMA and GPU peer access (docs/security.md has figures). --kv-devices has no effect then");
}

}  // namespace

void AddPrefillFlags(CLI::App& app, WorkerOptions& o) {
  AddFlags(app, o.common);
  AddWorkerFlags(app, o);
  AddPeerFlags(app, o);
  AddStepTokens(app, o);
  AddStaging(app, o);
  app.add_option("--max-requests", o.max_requests,
                 "upper bound on requests on this worker, excluding streaming prompts and low-priority jobs. A second "
                 "bound of the same size covers these two together; low-priority jobs are refused from half of it on")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  AddSeconds(app, "--peer-silence", o.peer_silence, 5,
             "seconds for which messages to a decode worker may wait while it answers none; its hand-offs then fail at "
             "once, until the two are linked again, and their requests go elsewhere; 0: no limit");
  AddGuard(app, o, "push KV only to decode workers that also have --guard-kv.");
}

void AddDecodeFlags(CLI::App& app, WorkerOptions& o) {
  AddFlags(app, o.common);
  AddWorkerFlags(app, o);
  AddPeerFlags(app, o);
  AddMaxBatch(app, o);
  app.add_option("--prefill-module", o.prefill_module,
                 "directory of the model that the prefill workers run, if --model was fine-tuned to continue from its "
                 "KV (PrefillShare); default: --model");
  app.add_flag("--verify-kv", o.verify_kv,
               "verify the bytes of each received KV block against the SHA-256 digest of the prefill worker. A request "
               "with damaged or forged blocks fails (docs/security.md has the cost)");
  AddGuard(app, o,
           "accept a KV block only from the prefill worker for which it is reserved, with the write key of the "
           "reservation.");
}

void AddServeFlags(CLI::App& app, ServeOptions& o) {
  AddFlags(app, o.router.common);
  AddClientFlags(app, o.router);
  AddWorkerFlags(app, o.worker, "model,--model");
  app.add_option("--decoder", o.decoders,
                 "directories of models that were fine-tuned to continue from the KV of --model (PrefillShare). Each "
                 "has its own name and its own decode worker")
      ->delimiter(',');
  AddStepTokens(app, o.worker);
  AddStaging(app, o.worker);
  AddMaxBatch(app, o.worker);
}

std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  app.set_version_flag("--version", kVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::string command = app.get_name();
    for (const CLI::App* subcommand : app.get_subcommands()) command += " " + subcommand->get_name();
    std::cerr << command << ": " << Explain(app, error, argc, argv) << "\nTry: " << command << " --help\n";
    return 1;
  }
  CLI::App* target = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  const CLI::Option* config = target->get_option_no_throw("--config");
  if (config == nullptr || config->count() == 0) return std::nullopt;
  if (const absl::Status status = ApplyConfigFile(*target, config->as<std::string>()); !status.ok()) {
    std::cerr << app.get_name() << ": " << Message(status) << "\n";
    return 1;
  }
  return std::nullopt;
}

absl::StatusOr<RouterOptions> ReadRouterOptions(int argc, const char* const* argv) {
  CLI::App app;
  RouterOptions options;
  AddFlags(app, options);
  // The command line is the one that was parsed at the start.
  app.parse(argc, argv);
  const CLI::Option* config = app.get_option("--config");
  if (config->count() > 0) RETURN_IF_ERROR(ApplyConfigFile(app, config->as<std::string>()));
  RETURN_IF_ERROR(Validate(options));
  return options;
}

absl::Status ApplyConfigFile(CLI::App& app, const std::string& path) {
  ASSIGN_OR_RETURN(const toml::table table, ReadTomlFile(path));
  for (const auto& [key, node] : table) {
    RETURN_IF_ERROR(ApplyKey(app, PlaceOf(path, node), std::string(key.str()), node));
  }
  return absl::OkStatus();
}

}  // namespace baton
