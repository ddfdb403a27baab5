#include "node/flags.h"

#include <iostream>
#include <sstream>

#include "base/status.h"
#include "base/strings.h"
#include "base/toml_file.h"
#include "base/version.h"
#include "membership/worker_names.h"

namespace baton {
namespace {

const CLI::Validator kMetricsAddress(
    [](std::string& text) -> std::string {
      return text.empty() || text == "off" || text == "0" ? "" : HostPort()(text);
    },
    "HOST:PORT|off");

const CLI::Validator kHttpAddress([](std::string& text)
                                      -> std::string { return text.empty() || text == "off" ? "" : HostPort()(text); },
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

void AddWorkerFlags(CLI::App& app, WorkerOptions& o, const std::string& model_name = "--model") {
  app.add_option(model_name, o.model, "Hugging Face directory of the model (required)");
  app.add_option("--threads", o.threads, "threads that compute; 0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--device", o.device,
                 "where it computes: cpu, cuda (those GPUs with most free memory, one for each rank), cuda:N,..., or "
                 "auto: cuda where there are GPUs that can run the model")
      ->check(kDevice)
      ->capture_default_str();
  app.add_option("--tensor-parallel", o.tensor_parallel,
                 "ranks that share out the model's heads and compute together, each with KV memory of its own; at most "
                 "one for each KV head. A rank takes a GPU; best of all they reach each other's memory. On the CPU the "
                 "threads are the ranks', and nothing is gained")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--same-bits", o.same_bits,
               "on a GPU: the same tokens give the same bits for any chunking and batch, which costs speed "
               "(bench/results/README.md); on the CPU this is always so");
  app.add_option("--kv-memory-mb", o.kv_memory_mb,
                 "memory for KV blocks, MiB, of each worker; 0: 1024 on the CPU, on a GPU nine tenths of what the "
                 "weights leave")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--kv-blocks", o.kv_blocks, "blocks of 16 tokens, instead of --kv-memory-mb")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
}

void AddPeerCertificates(CLI::App& app, TlsFiles& files) {
  app.add_option(
      "--peer-cert", files.certificate,
      "PEM: the certificate that this process shows to routers and workers, for the host names or addresses by "
      "which they reach it; with it all that they say to each other is encrypted, but for the KV blocks");
  app.add_option("--peer-key", files.key, "PEM: its private key");
  app.add_option("--peer-ca", files.authority, "PEM: who signed the certificates of routers and workers");
}

void AddEtcd(CLI::App& app, EtcdOptions& o) {
  app.add_option("--etcd", o.servers, "the servers of the etcd that knows the workers (its API v3)")
      ->delimiter(',')
      ->check(HostPort());
  app.add_option("--etcd-ca", o.tls.authority, "PEM: who signed their certificates; default: no encryption");
  app.add_option("--etcd-cert", o.tls.certificate, "PEM: the certificate that they are shown, which etcd may ask for");
  app.add_option("--etcd-key", o.tls.key, "PEM: its private key");
}

void AddPeerFlags(CLI::App& app, WorkerOptions& o) {
  AddPeerCertificates(app, o.common.peer);
  app.add_option("--listen", o.listen, "where to listen; port 0 takes a free one")
      ->check(HostPort())
      ->capture_default_str();
  app.add_option("--advertise", o.advertise, "host:port under which peers reach it; default: where it listens")
      ->check(HostPort());
  auto* registers =
      app.add_option("--register", o.register_under,
                     "as a router names it: there the worker keeps that address while it serves, under a lease");
  registers->check(kEtcdName);
  app.add_option("--lease-seconds", o.lease_seconds, "for which etcd keeps it when it is heard of no more")
      ->check(CLI::Range(int64_t{2}, int64_t{3600}))
      ->needs(registers)
      ->capture_default_str();
  AddEtcd(app, o.common.etcd);
  app.add_option(
         "--kv-devices", o.kv_devices,
         "network devices for KV blocks between hosts, as in UCX_NET_DEVICES: eth0, mlx5_0:1, all; lo keeps to this "
         "machine (shared memory is used there)")
      ->capture_default_str();
}

void AddStepTokens(CLI::App& app, WorkerOptions& o) {
  app.add_option("--step-tokens", o.step_tokens,
                 "most prompt tokens computed in one step; 0: 512 on the CPU, 2048 on a GPU")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 20) | CLI::IsMember({0}))
      ->capture_default_str();
  app.add_option(
         "--increment", o.increment,
         "tokens of a prompt that still grows (it waits for another request's output) that are worth a share of "
         "a step with others; 0: so many that a step's fixed cost, as measured, is a quarter of the whole")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--growing-step-ms", o.streaming_step_ms,
                 "streaming prompts fill a step for this long at most, as measured, or for twice its fixed cost: other "
                 "requests wait this long at most for them in the step that runs when they arrive, and in each step "
                 "that they share")
      ->check(CLI::Range(int64_t{1}, int64_t{60'000}))
      ->capture_default_str();
}

void AddStaging(CLI::App& app, WorkerOptions& o) {
  app.add_option("--kv-host-mb", o.kv_host_mb,
                 "memory for KV blocks that were evicted from --kv-memory-mb and may be needed again, MiB; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option(
      "--kv-disk-dir", o.kv_disk_dir,
      "directory on a local disk for KV blocks that --kv-host-mb has no room for; the file there has no name "
      "and nothing of it is left when the process ends");
  app.add_option("--kv-disk-mb", o.kv_disk_mb, "disk space for them, MiB, which is allocated at the start; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
}

void AddMaxBatch(CLI::App& app, WorkerOptions& o) {
  app.add_option("--max-batch", o.max_batch, "most requests decoded in one step; 0: 64 on the CPU, 256 on a GPU")
      ->check(CLI::Range(0, 1 << 14))
      ->capture_default_str();
}

void AddClientFlags(CLI::App& app, RouterOptions& o) {
  app.add_option("--listen", o.listen, "where to listen for clients; port 0 takes a free one")
      ->check(HostPort())
      ->capture_default_str();
  app.add_option("--http", o.http,
                 "where to listen for clients of OpenAI's API (HTTPS with --tls-cert); port 0 takes a free one")
      ->check(kHttpAddress)
      ->capture_default_str();
  app.add_option("--stream-silence", o.stream_silence,
                 "seconds after which a stream over HTTP that has nothing to say sends a comment, so that no balancer "
                 "takes it for idle")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  app.add_option("--keys", o.keys,
                 "TOML file of API keys (docs/security.md): who may call, and how much; SIGHUP reads it again");
  app.add_option("--tls-cert", o.tls.certificate,
                 "PEM: the certificate that clients are shown; with it gRPC and HTTP are encrypted");
  app.add_option("--tls-key", o.tls.key, "PEM: its private key");
  app.add_option("--max-requests", o.limits.live_requests, "most live requests; more get RESOURCE_EXHAUSTED")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  AddRetired(app, "--routing", "the router always places a request where its session or its prompt's beginning is");
  app.add_option(
         "--shadow-prefill", o.shadow_prefill,
         "prefill what requests with a session generate while they do, for the session's next turn: true, false")
      ->capture_default_str();
  app.add_option(
         "--max-sessions", o.max_sessions,
         "sessions that are active at a time; requests of others wait, tenants in turn: a number; auto, any number "
         "until memory is short of their KV, then as many as it holds; off")
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

absl::Status ApplyKey(CLI::App& app, const std::string& where, const std::string& key, const toml::node& node) {
  CLI::Option* option = app.get_option_no_throw("--" + key);
  if (option == nullptr || key == "config" || key == "help" || key == "version") {
    return absl::InvalidArgumentError(StrCat(where, ": unknown option '", key, "' (the names are those of --help)"));
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
        return "expected host:port, got '" + text + "'";
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
  app.add_option("--config", "TOML file with the same option names; flags win");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--log-format", o.log_format, "text, or json: an object for each line (docs/observability.md)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--metrics", o.metrics, "where Prometheus finds /metrics; port 0 takes a free one")
      ->check(kMetricsAddress)
      ->capture_default_str();
  app.add_flag("--vllm-metrics", o.vllm_metrics,
               "metrics also under vLLM's names (vllm:...), where these mean the same (docs/observability.md)");
  app.add_option("--grace", o.grace_seconds, "seconds that running requests get after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag(
      "--open", o.open,
      "listen where other machines may reach it even without keys or certificates: whoever reaches it may call");
  app.add_flag("--check", o.check, "validate options, model and memory, then exit with 0 or 1");
}

void AddFlags(CLI::App& app, RouterOptions& o) {
  AddFlags(app, o.common);
  AddPeerCertificates(app, o.common.peer);
  AddClientFlags(app, o);
  app.add_option("--model", o.models, "Hugging Face directories of the models that are served (required)")
      ->delimiter(',');
  app.add_option(
         "--prefill-workers", o.prefill_workers,
         "their addresses (required): HOST:PORT; dns:HOST:PORT, a worker at each address that DNS has for the "
         "host; srv:NAME, one for each SRV record; or etcd:PREFIX, one for each key that etcd has under it. What "
         "DNS and etcd name may change while the router runs")
      ->delimiter(',')
      ->check(kWorkerName);
  app.add_option("--decode-workers", o.decode_workers, "likewise (required)")->delimiter(',')->check(kWorkerName);
  app.add_option("--dns-server", o.dns_server,
                 "IP:PORT of the DNS server that knows the workers; default: the system's")
      ->check(HostPort());
  app.add_option("--dns-seconds", o.dns_seconds, "how often it is asked")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  AddEtcd(app, o.common.etcd);
}

namespace {

void AddGuard(CLI::App& app, WorkerOptions& o, const std::string& what) {
  app.add_flag(
      "--guard-kv", o.guard_kv,
      what +
          " KV blocks then move by gRPC (encrypted, where there are certificates) and not by UCX, which asks "
          "nobody who writes: nothing of the KV memory is shared or listened for. Slower than shared memory, RDMA "
          "and GPUs that reach each other (docs/security.md says how much); --kv-devices says nothing then");
}

}  // namespace

void AddPrefillFlags(CLI::App& app, WorkerOptions& o) {
  AddFlags(app, o.common);
  AddWorkerFlags(app, o);
  AddPeerFlags(app, o);
  AddStepTokens(app, o);
  AddStaging(app, o);
  app.add_option("--max-requests", o.max_requests,
                 "most requests that are there at once, and as many that still grow or run in the background")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  AddGuard(app, o, "push KV only to decode workers that have --guard-kv, too.");
}

void AddDecodeFlags(CLI::App& app, WorkerOptions& o) {
  AddFlags(app, o.common);
  AddWorkerFlags(app, o);
  AddPeerFlags(app, o);
  AddMaxBatch(app, o);
  app.add_option("--prefill-module", o.prefill_module,
                 "directory of the model that the prefill workers run, where this one was fine-tuned to go on from "
                 "its KV (PrefillShare); default: the model itself");
  app.add_flag(
      "--verify-kv", o.verify_kv,
      "use no KV block whose bytes are not those that its prefill worker sent: both sides take SHA-256 of what "
      "moves, and a request whose blocks were damaged or forged fails (docs/security.md says what it costs)");
  AddGuard(app, o,
           "take a KV block only from the prefill worker that it is reserved for, by a key which that one is given.");
}

void AddServeFlags(CLI::App& app, ServeOptions& o) {
  AddFlags(app, o.router.common);
  AddClientFlags(app, o.router);
  AddWorkerFlags(app, o.worker, "model,--model");
  app.add_option("--decoder", o.decoders,
                 "directories of models that were fine-tuned to go on from the KV of the first one (PrefillShare); "
                 "each is served under its own name, with a decode worker of its own")
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
